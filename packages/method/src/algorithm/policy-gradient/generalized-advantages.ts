/** A turn in a path or tree of tokens. */
export interface ValuedTurn {
  /** Reward of the whole turn; assigned to its last token. */
  reward: number;
  /** Additional reward of each token, such as a KL penalty. */
  tokenRewards: readonly number[];
  /** Value of the state in which each token is chosen. */
  values: readonly number[];
  /** Indices of the next turns; several where the tree branches. */
  children: readonly number[];
}

export interface GeneralizedAdvantageOptions {
  /** γ: discount per token, 0 to 1. */
  gamma: number;
  /** λ: 0 gives one-step TD errors, 1 gives Monte Carlo returns minus the value. */
  gaeLambda: number;
}

/**
 * Generalized advantage estimation (GAE) over tokens, one number for each token of each turn:
 *
 * δ_t = r_t + γ·V_{t+1} − V_t and A_t = δ_t + γλ·A_{t+1}
 *
 * Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation", arXiv 1506.02438,
 * equation 16. A turn's last token is followed by the first token of the next turn. Where the tree branches, V_{t+1}
 * and A_{t+1} are means over the children, each a sample of how the conversation continues; after a leaf they are 0. On
 * a single path this is the paper's definition.
 *
 * A turn without tokens has no action and no advantage: its reward and future go to its parent.
 */
export function generalizedAdvantages(
  turns: readonly ValuedTurn[],
  { gamma, gaeLambda }: GeneralizedAdvantageOptions,
): number[][] {
  const advantages: number[][] = turns.map(({ values }) => values.map(() => 0));
  /** Value and advantage of each turn's first token, which its parent uses. */
  const first = { value: new Float64Array(turns.length), advantage: new Float64Array(turns.length) };
  for (const index of childrenFirst(turns)) {
    const { reward, tokenRewards, values, children } = turns[index]!;
    let [value, advantage] = [first.value, first.advantage].map((all) =>
      mean(children.map((child) => all[child]!)),
    ) as [number, number];
    const last = values.length - 1;
    for (let token = last; token >= 0; token--) {
      const earned = tokenRewards[token]! + (token === last ? reward : 0);
      advantage = earned + gamma * value - values[token]! + gamma * gaeLambda * advantage;
      value = values[token]!;
      advantages[index]![token] = advantage;
    }
    first.value[index] = last < 0 ? reward + value : value;
    first.advantage[index] = advantage;
  }
  return advantages;
}

/** Indices in order, children before parents. */
function childrenFirst(turns: readonly ValuedTurn[]): number[] {
  const isChild = new Set(turns.flatMap(({ children }) => children));
  const parentsFirst = turns.flatMap((_, index) => (isChild.has(index) ? [] : [index]));
  // The array grows during iteration (breadth-first).
  for (const index of parentsFirst) parentsFirst.push(...turns[index]!.children);
  return parentsFirst.reverse();
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}
