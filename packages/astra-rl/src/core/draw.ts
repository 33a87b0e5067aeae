export type { DrawKey } from "@astra-rl/lm";

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
