import { AsyncLocalStorage } from "node:async_hooks";
import type { Message } from "@astra-rl/lm";
import { FailedMessage } from "./failure.js";

/**
 * Identifies a node of an episode for its random draws; together with a stream name it is a DrawKey. The prompt is node
 * 0, and child c of node n in a tree of width w is node n·w + c + 1, so numbers do not depend on the order in which
 * nodes are grown.
 */
export interface NodeKey {
  seed: number;
  episode: number;
  node: number;
  /** Selects an independent set of draws for the same node, for another attempt at it. Default 0. */
  draw?: number;
  /** What the node is grown for; it does not affect the draws. Default "train". */
  purpose?: Purpose;
}

/** Whether turns are grown for training or for evaluation; stateful rewards treat the two differently. */
export type Purpose = "train" | "evaluate";

/** Which episode to grow: a number n means seed n, episode 0. */
export type EpisodeSeed = number | { seed: number; episode: number };

/** Whether the start of a rollout is an episode; any other start is a state. */
export function isEpisodeSeed(start: unknown): start is EpisodeSeed {
  if (typeof start === "number") return true;
  return typeof start === "object" && start !== null && "seed" in start && "episode" in start;
}

/** Source of draws for calls without keys. */
interface Draws {
  /** Keys of the rows of the call in progress; empty for an episode, whose calls may have any number of rows. */
  readonly keys: readonly NodeKey[];
  readonly seed: number;
  readonly episode: number;
  readonly purpose: Purpose;
  /** Number of calls without keys so far. */
  calls: number;
  /** Messages generated in the call in progress, each with its node. */
  readonly said: { key: NodeKey; message: Message }[];
}

const progress = new AsyncLocalStorage<Draws>();
/** For calls outside of any episode. */
const elsewhere: Draws = { keys: [], seed: 0, episode: 0, purpose: "train", calls: 0, said: [] };

/** Runs `call`; calls without keys inside it use the draws of these rows. */
export function drawingAs<T>(keys: readonly NodeKey[] | undefined, call: () => Promise<T>): Promise<T> {
  // Without keys, the enclosing call's draws apply.
  if (keys === undefined || keys.length === 0) return call();
  const { seed, episode, purpose = "train" } = keys[0]!;
  return progress.run({ keys, seed, episode, purpose, calls: 0, said: [] }, call);
}

/** Runs `call`; calls without keys inside it take the episode's draws in sequence. */
export function drawingFrom<T>(start: EpisodeSeed, purpose: Purpose, call: () => Promise<T>): Promise<T> {
  const { seed, episode } = typeof start === "number" ? { seed: start, episode: 0 } : start;
  return progress.run({ keys: [], seed, episode, purpose, calls: 0, said: [] }, call);
}

/** Keys for a call without keys: the next unused draws. */
export function nextKeys(rows: number): NodeKey[] {
  const draws = progress.getStore() ?? elsewhere;
  const { keys, seed, episode, purpose } = draws;
  // The first call takes the keys of the rows in progress if it has as many rows; any other call gets fresh draws.
  const draw = -draws.calls++;
  if (keys.length === rows && draw === 0) return [...keys];
  return Array.from({ length: rows }, (_, row): NodeKey => {
    if (keys.length === rows) return { ...keys[row]!, draw: draw - (keys[row]!.draw ?? 0) };
    return { seed, episode, node: row, draw: draw - 1, purpose };
  });
}

/** Records messages generated in the call in progress, for `saidAt`. */
export function noteSaid(keys: readonly NodeKey[], messages: readonly Message[]): void {
  const said = progress.getStore()?.said;
  for (const [row, message] of messages.entries()) {
    if (!(message instanceof FailedMessage)) said?.push({ key: keys[row]!, message });
  }
}

/**
 * Messages generated at a node in the call in progress. A text that a method returns is matched against these, so that
 * it keeps its token ids.
 */
export function saidAt(key: NodeKey | undefined): Message[] {
  const said = key === undefined ? [] : (progress.getStore()?.said ?? []);
  return said.flatMap(({ key: at, message }) => {
    return at.seed === key!.seed && at.episode === key!.episode && at.node === key!.node ? [message] : [];
  });
}
