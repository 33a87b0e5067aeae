import { UsageError, type Json } from "@astra-rl/base";
import type { Conversation, Message } from "@astra-rl/lm";
import { Stateless, type Node } from "../../tree/index.js";
import { generalizedAdvantages, type GeneralizedAdvantageOptions } from "./generalized-advantages.js";
import { groupAdvantages, type GroupAdvantageOptions } from "./group-advantages.js";

/** Input of an advantage estimator for one turn. */
export interface EstimatedTurn<S = Conversation, A = Message> {
  node: Node<S, A>;
  credit: number;
  /** Additional reward of each token of the probe: −β·KL to the baseline, 0 without a penalty. */
  tokenRewards: readonly number[];
  /** Value of the state in which each token is chosen; null if the algorithm does not use values. */
  values: readonly number[] | null;
}

/**
 * Estimates advantages: one number for each token of each turn, in the order of the branches, with siblings adjacent.
 */
export interface AdvantageEstimator {
  /** Whether it needs a value function. */
  readonly usesValues: boolean;
  /** Whether it compares siblings, so that a turn without siblings has no advantage. */
  readonly usesSiblings: boolean;
  estimate<S, A>(branches: readonly (readonly EstimatedTurn<S, A>[])[]): number[][];
  getState(): Json;
  setState(state: Json): void;
}

/** Generalized advantage estimation (GAE) over the tokens of whole trees: see `generalizedAdvantages`. */
export class ValueAdvantage extends Stateless implements AdvantageEstimator {
  readonly usesValues = true;
  readonly usesSiblings = false;

  constructor(readonly options: GeneralizedAdvantageOptions) {
    super();
  }

  estimate<S, A>(branches: readonly (readonly EstimatedTurn<S, A>[])[]): number[][] {
    const turns = branches.flat();
    const places = new Map(turns.map(({ node }, index) => [node, index]));
    return generalizedAdvantages(
      turns.map(({ node, credit, tokenRewards, values }) => ({
        reward: credit,
        tokenRewards,
        values: values!,
        // A child without credit was not scored, so its return is unknown.
        children: node.children.flatMap((child) => places.get(child) ?? []),
      })),
      this.options,
    );
  }
}

/**
 * Advantages minus their mean over the turns of an experience at the same depth: the offset that a value head that has
 * learned nothing yet leaves in them. If each turn has a cost, that is the cost of all later turns, and it would make
 * every probe less likely, regardless of its outcome. The mean is taken over turns, of the means over their tokens. Turns
 * without such counterparts are unchanged.
 *
 * The depth of a turn does not depend on its probe. The number of turns after it does where a probe ends its branch
 * (`stopAt`), so a mean by that number is no baseline: it biases the gradient (docs/sibling-groups.md).
 */
export function centerAdvantages<S, A>(
  turns: readonly { node: Node<S, A> }[],
  advantages: readonly (readonly number[])[],
): number[][] {
  const parents = new Map(turns.flatMap(({ node }) => node.children.map((child) => [child, node] as const)));
  const depthOf = (node: Node<S, A>): number => {
    let depth = 0;
    for (let at = parents.get(node); at !== undefined; at = parents.get(at)) depth++;
    return depth;
  };
  const depths = turns.map(({ node }) => depthOf(node));
  const sums = new Map<number, { sum: number; count: number }>();
  advantages.forEach((row, turn) => {
    if (row.length === 0) return;
    const group = sums.get(depths[turn]!) ?? { sum: 0, count: 0 };
    group.sum += row.reduce((sum, value) => sum + value, 0) / row.length;
    group.count += 1;
    sums.set(depths[turn]!, group);
  });
  return advantages.map((row, turn) => {
    const { sum, count } = sums.get(depths[turn]!) ?? { sum: 0, count: 0 };
    const mean = count < 2 ? 0 : sum / count;
    return row.map((value) => value - mean);
  });
}

/** One advantage for all tokens of a turn: its return relative to its siblings', see `groupAdvantages`. */
export class SiblingAdvantage extends Stateless implements AdvantageEstimator {
  readonly usesValues = false;
  readonly usesSiblings = true;

  constructor(readonly options: GroupAdvantageOptions) {
    super();
  }

  estimate<S, A>(branches: readonly (readonly EstimatedTurn<S, A>[])[]): number[][] {
    return branches.flatMap((turns) => {
      const advantages = groupAdvantages(turns.map(returnOf), this.options);
      return turns.map((turn, index) => turn.tokenRewards.map(() => advantages?.[index] ?? 0));
    });
  }
}

export const BASELINES = ["others", "running", "none"] as const;

/** Decay of the running mean per experience. */
const KEPT = 0.9;

/**
 * One advantage for all tokens of a turn: its return minus a baseline that does not depend on the turn, so that the
 * gradient is unbiased (Williams 1992).
 *
 * - `others`: the mean over the other turns of the experience; 0 for a single turn;
 * - `running`: an exponential moving average over earlier experiences with weight 0.1 for the newest; 0 in the first;
 * - `none`: 0.
 */
export class BaselineAdvantage implements AdvantageEstimator {
  readonly usesValues = false;
  readonly usesSiblings = false;
  #running: number | null = null;

  constructor(readonly baseline: (typeof BASELINES)[number]) {}

  estimate<S, A>(branches: readonly (readonly EstimatedTurn<S, A>[])[]): number[][] {
    const turns = branches.flat();
    const returns = turns.map(returnOf);
    const sum = returns.reduce((total, value) => total + value, 0);
    const others = turns.length - 1;
    const expected = (value: number) => {
      if (this.baseline === "others") return others === 0 ? 0 : (sum - value) / others;
      return this.baseline === "running" ? (this.#running ?? 0) : 0;
    };
    const advantages = turns.map(({ tokenRewards }, index) =>
      tokenRewards.map(() => returns[index]! - expected(returns[index]!)),
    );
    if (this.baseline === "running" && turns.length > 0) {
      const mean = sum / turns.length;
      this.#running = this.#running === null ? mean : KEPT * this.#running + (1 - KEPT) * mean;
    }
    return advantages;
  }

  getState(): Json {
    return this.#running;
  }

  setState(state: Json): void {
    if (state !== null && this.baseline !== "running") {
      throw new UsageError(
        "no-state",
        `BaselineAdvantage.setState: this baseline has no state, got ${JSON.stringify(state)}`,
      );
    }
    if (state !== null && !(typeof state === "number" && Number.isFinite(state))) {
      throw new UsageError(
        "invalid-state",
        `BaselineAdvantage.setState: needs a running mean or null, got ${JSON.stringify(state)}`,
      );
    }
    this.#running = state;
  }
}

/** The turn's credit plus its token rewards. */
function returnOf<S, A>({ credit, tokenRewards }: EstimatedTurn<S, A>): number {
  return tokenRewards.reduce((sum, reward) => sum + reward, credit);
}
