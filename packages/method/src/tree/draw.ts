import { AsyncLocalStorage } from "node:async_hooks";
import { keyedUniform } from "@astra-rl/base";

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
  /** Keys of the nodes in progress, one for each row of a call for all of them. */
  readonly keys: readonly [NodeKey, ...NodeKey[]];
  /** Number of calls without keys so far. */
  calls: number;
  /** Number of draws that belong to no node in progress so far. */
  others: number;
}

const drawsOf = (keys: Draws["keys"]): Draws => ({ keys, calls: 0, others: 0 });

/** The only state of calls without keys: concurrent or nested rollouts do not share their draws. */
const progress = new AsyncLocalStorage<Draws>();
/** For calls outside of any episode. */
const elsewhere = drawsOf([{ seed: 0, episode: 0, node: 0 }]);

/** Runs `call`; calls without keys inside it use the draws of these nodes. */
export function drawingAs<T>(keys: readonly NodeKey[], call: () => Promise<T>): Promise<T> {
  const [first, ...others] = keys;
  return first === undefined ? call() : progress.run(drawsOf([first, ...others]), call);
}

/**
 * Runs `call`; calls without keys inside it take the draws of this episode in sequence. Where several episodes grow
 * together, these are the first one's, so that the same episodes give the same graphs. Rollouts of an evaluation have
 * the purpose "evaluate".
 */
export function drawingFrom<T>(
  starts: readonly EpisodeSeed[],
  purpose: Purpose,
  call: () => Promise<T>,
): Promise<T> {
  const isInEvaluation = progress.getStore()?.keys[0].purpose === "evaluate";
  const first = starts.slice(0, 1).map((start): NodeKey => {
    const { seed, episode } = typeof start === "number" ? { seed: start, episode: 0 } : start;
    return { seed, episode, node: 0, purpose: isInEvaluation ? "evaluate" : purpose };
  });
  return drawingAs(first, call);
}

/**
 * Keys for a call without keys, which has `rows` rows: those of the nodes in progress if it has one row for each, with
 * other draws each time; else draws of the first of them that no other call takes.
 */
export function nextKeys(rows: number): NodeKey[] {
  const draws = progress.getStore() ?? elsewhere;
  const { keys } = draws;
  if (keys.length === rows) {
    const call = draws.calls++;
    // The first call uses the keys themselves.
    return keys.map((key) => (call === 0 ? key : { ...key, draw: furtherDraw(key, call, 0) }));
  }
  return Array.from({ length: rows }, () => ({ ...keys[0], draw: furtherDraw(keys[0], draws.others++, 1) }));
}

/**
 * A draw that nothing else uses: negative, since draws of callers are not. A hash, so that a call inside of
 * a call that was itself without keys uses none of the outer one's.
 */
function furtherDraw({ draw = 0 }: NodeKey, call: number, kind: number): number {
  const key = { seed: draw, stream: "further draws", episode: call, node: kind };
  return -1 - Math.floor(keyedUniform(key, 0) * Number.MAX_SAFE_INTEGER);
}
