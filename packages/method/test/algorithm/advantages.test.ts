import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import {
  BaselineAdvantage,
  generalizedAdvantages,
  KLController,
  normalizeAdvantages,
  SiblingAdvantage,
  groupAdvantages,
  type EstimatedTurn,
  type ValuedTurn,
} from "../../src/algorithm/policy-gradient/index.js";
import { Node } from "../../src/tree/index.js";

const leaf = (reward: number, values: number[], tokenRewards = values.map(() => 0)): ValuedTurn => ({
  reward,
  values,
  tokenRewards,
  children: [],
});

const expectRows = (rows: readonly (readonly number[])[], expected: readonly (readonly number[])[]) => {
  expect(rows.map((row) => row.length)).toEqual(expected.map((row) => row.length));
  rows.flat().forEach((value, index) => expect(value).toBeCloseTo(expected.flat()[index]!, 12));
};

describe("generalized advantages by hand", () => {
  it("are rewards to the end minus values for γ = λ = 1", () => {
    const turn = leaf(1, [0.5, 0.25, 2], [-0.1, -0.2, -0.3]);
    // Returns: 1 − 0.6, 1 − 0.5, 1 − 0.3
    expectRows(generalizedAdvantages([turn], { gamma: 1, gaeLambda: 1 }), [[-0.1, 0.25, -1.3]]);
  });

  it("are single steps for λ = 0, the reward falling to the last token", () => {
    // δ = 0.9·V' − V: 0.9·0.25 − 0.5 and 1 − 0.25
    expectRows(generalizedAdvantages([leaf(1, [0.5, 0.25])], { gamma: 0.9, gaeLambda: 0 }), [[-0.275, 0.75]]);
  });

  it("continue into the next turn", () => {
    // δ: 0.5·2 − 1 = 0; 3 + 0.5·4 − 2 = 3; 5 − 4 = 1. With γλ = ¼: 1; 3 + ¼; 0 + ¼·3.25.
    const path = [{ ...leaf(3, [1, 2]), children: [1] }, leaf(5, [4])];
    expectRows(generalizedAdvantages(path, { gamma: 0.5, gaeLambda: 0.5 }), [[0.8125, 3.25], [1]]);
  });

  it("take the mean over children, of values and of advantages", () => {
    // Children: A = 6 − 1 and 2 − 3. Parent: δ = 1 + (1 + 3)/2 − 0.5 = 2.5, A = 2.5 + ½·(5 − 1)/2.
    const tree = [{ ...leaf(1, [0.5]), children: [1, 2] }, leaf(6, [1]), leaf(2, [3])];
    expectRows(generalizedAdvantages(tree, { gamma: 1, gaeLambda: 0.5 }), [[3.5], [5], [-1]]);
  });

  it("pass through a turn without tokens: its reward and returns go to its parent", () => {
    // Parent, an empty turn that earned 2, a child with V = 3 that earned 4: δ = 1 + (2 + 3) − 0.5.
    const path = [{ ...leaf(1, [0.5]), children: [1] }, { ...leaf(2, []), children: [2] }, leaf(4, [3])];
    expectRows(generalizedAdvantages(path, { gamma: 1, gaeLambda: 0 }), [[5.5], [], [1]]);
    expectRows(generalizedAdvantages(path, { gamma: 1, gaeLambda: 1 }), [[6.5], [], [1]]);
  });
});

describe("generalized advantages compared with an independent computation", () => {
  interface Tree {
    turn: ValuedTurn;
    children: Tree[];
  }
  const number = fc.double({ min: -2, max: 2, noNaN: true });
  const fieldsOf = fc
    .array(fc.record({ value: number, reward: number }), { minLength: 1, maxLength: 4 })
    .chain((tokens) =>
      number.map((reward) =>
        leaf(
          reward,
          tokens.map((t) => t.value),
          tokens.map((t) => t.reward),
        ),
      ),
    );
  const treeOf = (depth: number): fc.Arbitrary<Tree> =>
    fc.record({
      turn: fieldsOf,
      children: depth === 0 ? fc.constant([]) : fc.array(treeOf(depth - 1), { maxLength: 3 }),
    });

  /** Lays a tree out with its children anywhere behind or before their parents. */
  function layOut(roots: readonly Tree[], backwards: boolean): { turns: ValuedTurn[]; trees: Tree[] } {
    const trees: Tree[] = [];
    const visit = (tree: Tree) => {
      if (!backwards) trees.push(tree);
      tree.children.forEach(visit);
      if (backwards) trees.push(tree);
    };
    roots.forEach(visit);
    return {
      trees,
      turns: trees.map((tree) => ({
        ...tree.turn,
        children: tree.children.map((child) => trees.indexOf(child)),
      })),
    };
  }

  /**
   * Equation 16 as it is written, Σ (γλ)^l δ_{t+l}, from one token: forwards, and at a branch the mean over what each child's
   * own sum continues with.
   */
  function forwards(tree: Tree, token: number, gamma: number, gaeLambda: number): number {
    const { reward, tokenRewards, values } = tree.turn;
    const last = values.length - 1;
    const average = (numbers: number[]) =>
      numbers.length === 0 ? 0 : numbers.reduce((a, b) => a + b, 0) / numbers.length;
    let sum = 0;
    for (let at = token; at <= last; at++) {
      const next = at < last ? values[at + 1]! : average(tree.children.map((child) => child.turn.values[0]!));
      const delta = tokenRewards[at]! + (at === last ? reward : 0) + gamma * next - values[at]!;
      sum += (gamma * gaeLambda) ** (at - token) * delta;
    }
    const beyond = average(tree.children.map((child) => forwards(child, 0, gamma, gaeLambda)));
    return sum + (gamma * gaeLambda) ** (last - token + 1) * beyond;
  }

  it("on trees of any shape, for any order of the turns", () => {
    const unit = fc.double({ min: 0, max: 1, noNaN: true });
    fc.assert(
      fc.property(
        fc.array(treeOf(3), { maxLength: 2 }),
        unit,
        unit,
        fc.boolean(),
        (roots, gamma, gaeLambda, backwards) => {
          const { turns, trees } = layOut(roots, backwards);
          const expected = trees.map((tree) =>
            tree.turn.values.map((_, token) => forwards(tree, token, gamma, gaeLambda)),
          );
          generalizedAdvantages(turns, { gamma, gaeLambda }).forEach((row, turn) =>
            row.forEach((value, token) => expect(value).toBeCloseTo(expected[turn]![token]!, 9)),
          );
        },
      ),
      { numRuns: 100 },
    );
  });

  it("telescope to returns minus values for γ = λ = 1, on trees as the mean over paths", () => {
    fc.assert(
      fc.property(treeOf(3), (root) => {
        const { turns } = layOut([root], false);
        const total = (tree: Tree): number =>
          tree.turn.reward +
          tree.turn.tokenRewards.reduce((a, b) => a + b, 0) +
          (tree.children.length === 0
            ? 0
            : tree.children.map(total).reduce((a, b) => a + b, 0) / tree.children.length);
        const [first] = generalizedAdvantages(turns, { gamma: 1, gaeLambda: 1 });
        expect(first![0]).toBeCloseTo(total(root) - root.turn.values[0]!, 9);
      }),
      { numRuns: 100 },
    );
  });
});

describe("advantages of groups", () => {
  it("are the reward minus the mean of the others (RLOO)", () => {
    expect(groupAdvantages([1, 4, 7], { baseline: "others", scale: "none" })).toEqual([-4.5, 0, 4.5]);
  });

  it("are the reward minus the mean of all (Dr. GRPO), and divided by their deviation (GRPO)", () => {
    expect(groupAdvantages([1, 4, 7], { baseline: "mean", scale: "none" })).toEqual([-3, 0, 3]);
    const scaled = groupAdvantages([1, 4, 7], { baseline: "mean", scale: "std" })!;
    [-3, 0, 3].forEach((value, index) => expect(scaled[index]).toBeCloseTo(value / 3.0001, 12));
    // Of two only the sign is left.
    const pair = groupAdvantages([0, 1000], { baseline: "mean", scale: "std" })!;
    expect(pair[1]).toBeCloseTo(Math.SQRT1_2, 5);
  });

  it("are 0 in a group of equal ones, and null for a single one", () => {
    expect(groupAdvantages([2, 2], { baseline: "mean", scale: "std" })).toEqual([0, 0]);
    expect(groupAdvantages([2], { baseline: "others", scale: "none" })).toBeNull();
  });
});

const turn = (credit: number, tokenRewards: number[]): EstimatedTurn<string, string> => ({
  node: new Node({ context: "c", probe: "p", response: "r", reward: credit }),
  credit,
  tokenRewards,
  values: null,
});

describe("estimators", () => {
  it("compare siblings by their credit less the penalties of all their tokens, the same for each token", () => {
    const branches = [
      [turn(3, [0, -1]), turn(1, [0])],
      [turn(0, [-2]), turn(0, [0, 0]), turn(5, [])],
    ];
    const estimator = new SiblingAdvantage({ baseline: "others", scale: "none" });
    // Returns 2, 1; then −2, 0, 5.
    expectRows(estimator.estimate(branches), [[1, 1], [-1], [-4.5], [-1.5, -1.5], []]);
  });

  it("compare with the other turns of the experience, with no baseline, or with earlier experiences", () => {
    const branches = [[turn(3, [0])], [turn(1, [-1, 0]), turn(9, [0])]];
    expectRows(new BaselineAdvantage("others").estimate(branches), [[-1.5], [-6, -6], [7.5]]);
    expectRows(new BaselineAdvantage("none").estimate(branches), [[3], [0, 0], [9]]);
    expectRows(new BaselineAdvantage("others").estimate([[turn(3, [0])]]), [[3]]);
    const running = new BaselineAdvantage("running");
    expectRows(running.estimate(branches), [[3], [0, 0], [9]]);
    // Mean 4; then 0.9·4 + 0.1·14 = 5.
    expectRows(running.estimate([[turn(14, [0])]]), [[10]]);
    expectRows(running.estimate([[turn(14, [0])]]), [[9]]);
  });

  it("resume with a running mean, and refuse other state", () => {
    const [one, other] = [new BaselineAdvantage("running"), new BaselineAdvantage("running")];
    one.estimate([[turn(4, [0])]]);
    other.setState(one.getState());
    expect(other.estimate([[turn(5, [0])]])).toEqual([[1]]);
    expect(() => other.setState("four")).toThrow(breaking("invalid-state", '"four"'));
    expect(new BaselineAdvantage("others").getState()).toBeNull();
    expect(() => new BaselineAdvantage("others").setState(4)).toThrow(breaking("no-state", "4"));
  });
});

describe("normalized advantages", () => {
  it("have mean 0 and deviation 1 over all tokens", () => {
    // 1, 2, 3, 6: mean 3, deviation √3.5.
    const rows = normalizeAdvantages([[1, 2], [], [3, 6]]);
    expect(rows.map((row) => row.length)).toEqual([2, 0, 2]);
    [-2, -1, 0, 3].forEach((x, at) => expect(rows.flat()[at]).toBeCloseTo(x / Math.sqrt(3.5), 7));
  });

  it("are 0 and not NaN for a single token and for equal ones", () => {
    expect(normalizeAdvantages([[5]])).toEqual([[0]]);
    expect(normalizeAdvantages([[5, 5], [5]])).toEqual([[0, 0], [0]]);
    expect(normalizeAdvantages([])).toEqual([]);
  });
});

describe("the coefficient of the KL penalty", () => {
  it("changes by a tenth of the relative error, at most a fiftieth", () => {
    const controller = new KLController(0.1, 6);
    controller.update(6.6);
    expect(controller.coefficient).toBeCloseTo(0.1 * 1.01, 14);
    controller.update(60);
    expect(controller.coefficient).toBeCloseTo(0.1 * 1.01 * 1.02, 14);
    controller.update(0);
    expect(controller.coefficient).toBeCloseTo(0.1 * 1.01 * 1.02 * 0.98, 14);
    const other = new KLController(5, 6);
    other.setState(controller.getState());
    expect(other.coefficient).toBe(controller.coefficient);
  });

  it("is fixed without a target, and not part of the state", () => {
    const controller = new KLController(0.1, null);
    controller.update(60);
    expect([controller.coefficient, controller.getState()]).toEqual([0.1, null]);
    expect(() => controller.setState(0.3)).toThrow(breaking("no-state", "0.3"));
    expect(() => new KLController(0.1, 6).setState("much")).toThrow(breaking("invalid-state", '"much"'));
  });
});
