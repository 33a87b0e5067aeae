import { AsyncLocalStorage } from "node:async_hooks";
import type { Message } from "@astra-rl/lm";
import { FailedMessage } from "./failure.js";

/**
 * Names a node of an episode for the random draws made there; with a stream's name it is a DrawKey. The prompt is
 * node 0 and child c of node n in a tree of width w is node n·w + c + 1, so the number does not depend on the order
 * in which nodes are grown.
 */
export interface NodeKey {
  seed: number;
  episode: number;
  node: number;
  /** Another number names other draws of the same node: a further attempt at it. Default 0. */
  draw?: number;
  /** What the node is grown for; names no draw. Default "train". */
  purpose?: Purpose;
}

/** Whether turns are grown to learn from them or to measure: a reward that remembers what was tried tells them apart. */
export type Purpose = "train" | "evaluate";

/** Which episode to grow: a number n is seed n, episode 0. */
export type EpisodeSeed = number | { seed: number; episode: number };

/** Whether the start of a rollout names an episode; any other start is a state. */
export function isEpisodeSeed(start: unknown): start is EpisodeSeed {
  if (typeof start === "number") return true;
  return typeof start === "object" && start !== null && "seed" in start && "episode" in start;
}

/** What calls without keys draw from. */
interface Draws {
  /** Names the rows of the call in progress; empty for an episode, whose calls may have any number of rows. */
  readonly keys: readonly NodeKey[];
  readonly seed: number;
  readonly episode: number;
  readonly purpose: Purpose;
  /** Calls so far that were given no keys. */
  calls: number;
  /** What models have said in the call in progress, and at which node. */
  readonly said: { key: NodeKey; message: Message }[];
}

const progress = new AsyncLocalStorage<Draws>();
/** For calls that belong to nothing. */
const elsewhere: Draws = { keys: [], seed: 0, episode: 0, purpose: "train", calls: 0, said: [] };

/** Makes a call whose own calls, where they are given no keys, draw as these rows do. */
export function drawingAs<T>(keys: readonly NodeKey[] | undefined, call: () => Promise<T>): Promise<T> {
  // Without keys, the call belongs to whatever is in progress around it.
  if (keys === undefined || keys.length === 0) return call();
  const { seed, episode, purpose = "train" } = keys[0]!;
  return progress.run({ keys, seed, episode, purpose, calls: 0, said: [] }, call);
}

/** Makes a call whose own calls, where they are given no keys, take the draws of an episode one after the other. */
export function drawingFrom<T>(start: EpisodeSeed, purpose: Purpose, call: () => Promise<T>): Promise<T> {
  const { seed, episode } = typeof start === "number" ? { seed: start, episode: 0 } : start;
  return progress.run({ keys: [], seed, episode, purpose, calls: 0, said: [] }, call);
}

/** Keys for a call that was given none: the next draws that nothing has used. */
export function nextKeys(rows: number): NodeKey[] {
  const draws = progress.getStore() ?? elsewhere;
  const { keys, seed, episode, purpose } = draws;
  // The first call for the very rows in progress is what those rows are about; any further one draws something else.
  const draw = -draws.calls++;
  if (keys.length === rows && draw === 0) return [...keys];
  return Array.from({ length: rows }, (_, row): NodeKey => {
    if (keys.length === rows) return { ...keys[row]!, draw: draw - (keys[row]!.draw ?? 0) };
    return { seed, episode, node: row, draw: draw - 1, purpose };
  });
}

/** Notes what models have said in the call in progress, for `saidAt`. */
export function noteSaid(keys: readonly NodeKey[], messages: readonly Message[]): void {
  const said = progress.getStore()?.said;
  for (const [row, message] of messages.entries()) {
    if (!(message instanceof FailedMessage)) said?.push({ key: keys[row]!, message });
  }
}

/** What models have said at a node in the call in progress: a method that returns one of these as a text has returned it. */
export function saidAt(key: NodeKey | undefined): Message[] {
  const said = key === undefined ? [] : (progress.getStore()?.said ?? []);
  return said.flatMap(({ key: at, message }) => {
    return at.seed === key!.seed && at.episode === key!.episode && at.node === key!.node ? [message] : [];
  });
}
