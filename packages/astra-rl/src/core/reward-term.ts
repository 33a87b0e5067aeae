import type { NodeKey } from "./draw.js";
import type { Failure } from "./failure.js";
import type { Graph } from "./graph.js";
import type { Likelihood } from "./node.js";
import type { Stateful } from "./state.js";

/** What is known of a turn when it is judged. */
export interface Turn {
  context: string;
  probe: string;
  response: string;
  /** Its node, and in `purpose` what it is grown for. */
  key: NodeKey;
  /** null where the system cannot tell, or failed to. */
  likelihood: Likelihood | null;
  /**
   * log P of each id of the probe under the tester that sampled it, at temperature 1 and without filters; null, or absent,
   * where the system cannot tell.
   */
  testerLogprobs?: readonly number[] | null;
}

/** One named quantity of a turn; a reward is a weighted sum of them. */
export interface RewardTerm extends Partial<Stateful> {
  /** Names the value in `Node.terms` and in the metrics; no two terms of a reward share one. */
  readonly name: string;
  /** What turns must bring along. A system that cannot tell it is refused before anything runs. */
  readonly needs: readonly "likelihood"[];
  /**
   * One finite number for each turn, or why there is none. Throwing fails all of these turns; the call is repeated
   * before it counts. A value must not depend on which other turns are asked about: how turns are batched is not part
   * of a reward.
   */
  score(turns: readonly Turn[]): Promise<readonly (number | Failure)[]>;
  /** Told of finished training graphs in episode order, once for each experience: the place to remember what was tried. */
  observe?(graphs: readonly Graph[]): Promise<void>;
  /** Frees what it judges by (scorers, embedders, weights), by `disposeOnce` where others may hold it as well. */
  dispose?(): void;
}
