import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
  groupAdvantages,
  SiblingAdvantage,
  ValueAdvantage,
  type AdvantageEstimator,
  type EstimatedTurn,
} from "../../src/algorithm/policy-gradient/index.js";
import { centerAdvantages } from "../../src/algorithm/policy-gradient/advantages.js";
import { backUp } from "../../src/tree/index.js";
import { TextGraph, TextNode } from "../support/texts.js";

// A policy that decides, at each of three turns, whether the conversation ends: P(go) = σ(θ) of the turn. Every turn earns a
// reward, so that going on is always better. All expectations are sums over all outcomes, in float64.

const TURNS = 3;
const REWARDS = { go: 0.4, stop: 0.5 };
type Action = keyof typeof REWARDS;
const ACTIONS: readonly Action[] = ["go", "stop"];
/** P(go), by turn. */
const POLICY = [0.5, 0.5, 0.5];
const chance = (turn: number, action: Action) => (action === "go" ? POLICY[turn]! : 1 - POLICY[turn]!);
/** ∂ log π(action) / ∂θ of its turn. */
const score = (turn: number, action: Action) => (action === "go" ? 1 - POLICY[turn]! : -POLICY[turn]!);
const continues = (turn: number, action: Action) => action === "go" && turn < TURNS - 1;

type Gradient = number[];
const zero = (): Gradient => Array<number>(TURNS).fill(0);
const largest = (values: readonly number[]) => Math.max(...values.map((value) => Math.abs(value)));
const minus = (a: Gradient, b: Gradient) => a.map((value, turn) => value - b[turn]!);

/** Expected return from a turn on. */
const valueAt = (turn: number): number =>
  turn === TURNS
    ? 0
    : ACTIONS.reduce((sum, action) => sum + chance(turn, action) * returnOf(turn, action), 0);
const returnOf = (turn: number, action: Action): number =>
  REWARDS[action] + (continues(turn, action) ? valueAt(turn + 1) : 0);

/** P(the conversation reaches a turn), and its derivative by the θ of each turn. */
const reaches = (turn: number) => POLICY.slice(0, turn).reduce((product, p) => product * p, 1);
const reachesBy = (turn: number): Gradient =>
  POLICY.map((p, by) => (by < turn ? reaches(turn) * (1 - p) : 0));

/** The gradient of the expected return: P(reach) · σ′ · (return of go − return of stop). */
const EXACT: Gradient = POLICY.map(
  (p, turn) => reaches(turn) * p * (1 - p) * (returnOf(turn, "go") - returnOf(turn, "stop")),
);

/** All values of a list of independent draws, with their probability. */
function* together<T>(
  each: readonly (readonly [T, number])[],
  count: number,
): Generator<readonly [T[], number]> {
  if (count === 0) yield [[], 1];
  else
    for (const [rest, p] of together(each, count - 1))
      for (const [value, q] of each) yield [[...rest, value], p * q];
}

// Groups of whole conversations, compared turn by turn

const conversations = (turn = 0): (readonly [Action[], number])[] =>
  ACTIONS.flatMap((action) => {
    const p = chance(turn, action);
    if (!continues(turn, action)) return [[[action], p] as const];
    return conversations(turn + 1).map(([rest, q]) => [[action, ...rest], p * q] as const);
  });

/** Expected gradient of groups whose advantages are, at each turn, relative to those that reached it, and summed to the end. */
function byTurn(count: number, options: Parameters<typeof groupAdvantages>[1]): Gradient {
  const expected = zero();
  for (const [group, p] of together(conversations(), count)) {
    const advantages = group.map(() => zero());
    for (let turn = 0; turn < TURNS; turn++) {
      const there = [...group.keys()].filter((row) => turn < group[row]!.length);
      const rewards = there.map((row) => REWARDS[group[row]![turn]!]);
      // Alone at its turn: there is nobody to compare with.
      const relative = groupAdvantages(rewards, options) ?? rewards;
      there.forEach((row, at) => (advantages[row]![turn] = relative[at]!));
    }
    group.forEach((actions, row) =>
      actions.forEach((action, turn) => {
        const later = advantages[row]!.slice(turn).reduce((sum, value) => sum + value, 0);
        expected[turn]! += (p * score(turn, action) * later) / count;
      }),
    );
  }
  return expected;
}

/** −Σ_k m_k · P(another of the group reaches turn k) · ∂P(reach turn k): what groups by turn add to the gradient. */
const closedForm = (count: number): Gradient =>
  POLICY.map((_, by) =>
    POLICY.reduce((sum, _, turn) => {
      const mean = ACTIONS.reduce((total, action) => total + chance(turn, action) * REWARDS[action], 0);
      const known = 1 - (1 - reaches(turn)) ** (count - 1);
      return sum - mean * known * reachesBy(turn)[by]!;
    }, 0),
  );

// Trees of siblings

const WIDTH = 2;
type Branch = { action: Action; children: Branch[] };

const nodesAt = (turn: number): (readonly [Branch, number])[] =>
  ACTIONS.flatMap((action) => {
    const p = chance(turn, action);
    if (!continues(turn, action)) return [[{ action, children: [] }, p] as const];
    return [...together(nodesAt(turn + 1), WIDTH)].map(
      ([children, q]) => [{ action, children }, p * q] as const,
    );
  });

const nodeOf = ({ action, children }: Branch): TextNode =>
  new TextNode({
    context: "",
    probe: action,
    response: "",
    reward: REWARDS[action],
    children: children.map(nodeOf),
  });

type Weights = "by turn" | "mean over all turns";

/** Expected gradient of trees, by the project's own credit and advantages. */
function ofTrees(
  estimator: AdvantageEstimator,
  { isCentered = false, weights = "by turn" as Weights, op = "mean" as "mean" | "max" } = {},
): Gradient {
  const expected = zero();
  const credit = backUp<string, string>({ op, gamma: 1 });
  for (const [roots, p] of together(nodesAt(0), WIDTH)) {
    const graph = new TextGraph({ context: "", children: roots.map(nodeOf) });
    const table = estimator.usesValues ? null : credit(graph);
    const branches = [...graph.siblings()].map((siblings) =>
      siblings.map((node): EstimatedTurn<string, string> => ({
        node,
        credit: table?.get(node) ?? node.reward,
        tokenRewards: [0],
        values: estimator.usesValues ? [0] : null,
      })),
    );
    const turns = branches.flat();
    const raw = estimator.estimate(branches);
    const advantages = isCentered ? centerAdvantages(turns, raw) : raw;
    const depths = depthsOf(graph);
    turns.forEach(({ node }, index) => {
      const turn = depths.get(node)!;
      const weight = weights === "by turn" ? WIDTH ** -(turn + 1) : 1 / turns.length;
      expected[turn]! += p * weight * score(turn, node.probe as Action) * advantages[index]![0]!;
    });
  }
  return expected;
}

function depthsOf(graph: TextGraph): Map<TextNode, number> {
  const depths = new Map(graph.children.map((node) => [node, 0]));
  for (const [node, depth] of depths) for (const child of node.children) depths.set(child, depth + 1);
  return depths;
}

const sibling = (options: Parameters<typeof groupAdvantages>[1]) => new SiblingAdvantage(options);
const others = { baseline: "others", scale: "none" } as const;
const mean = { baseline: "mean", scale: "none" } as const;
const byDeviation = { baseline: "mean", scale: "std" } as const;
const GROUP = 8;

/** The rows of the table in docs/sibling-groups.md. */
const ROWS: Record<string, Gradient> = {
  "exact: derivative of the expected return": EXACT,
  "by turn, 8 conversations, mean of the others": byTurn(GROUP, others),
  "by turn, 8 conversations, mean of all": byTurn(GROUP, mean),
  "by turn, 8 conversations, mean of all, divided by std": byTurn(GROUP, byDeviation),
  "siblings, mean of the others (RLOO)": ofTrees(sibling(others)),
  "siblings, mean of all (GRPO)": ofTrees(sibling(mean)),
  "siblings, mean of all, divided by std (GRPO, `scale: std`)": ofTrees(sibling(byDeviation)),
  "siblings, RLOO, credit of the best child (`op: max`)": ofTrees(sibling(others), { op: "max" }),
  "siblings, RLOO, loss averaged over all turns": ofTrees(sibling(others), {
    weights: "mean over all turns",
  }),
  "values of 0, centred by depth (PPO, A2C)": ofTrees(new ValueAdvantage({ gamma: 1, gaeLambda: 1 }), {
    isCentered: true,
  }),
};

const figure = (value: number) => value.toFixed(3).replace("-", "−");

describe("groups over turns of a policy that decides when the conversation ends", () => {
  it("of conversations, turn by turn, add what the closed form says: a cost of each further turn", () => {
    for (const count of [2, 3, 5]) {
      const bias = minus(byTurn(count, others), EXACT);
      expect(largest(minus(bias, closedForm(count)))).toBeLessThan(1e-12);
    }
    // Going on is better at the first two turns, and this gradient teaches to stop.
    expect(EXACT.slice(0, 2).every((value) => value > 0.04)).toBe(true);
    const ofConversations = Object.entries(ROWS).filter(([name]) => name.startsWith("by turn"));
    expect(ofConversations).toHaveLength(3);
    for (const [, gradient] of ofConversations) expect(gradient.every((value) => value < 0)).toBe(true);
  });

  it("of siblings add nothing with the mean of the others, and scale by (n − 1)/n with the mean of all", () => {
    expect(largest(minus(ofTrees(sibling(others)), EXACT))).toBeLessThan(1e-12);
    const scaled = EXACT.map((value) => (value * (WIDTH - 1)) / WIDTH);
    expect(largest(minus(ofTrees(sibling(mean)), scaled))).toBeLessThan(1e-12);
  });

  it("of siblings divided by their standard deviation lose the size of differences, not their sign", () => {
    const divided = ofTrees(sibling(byDeviation));
    expect(divided.map(Math.sign)).toEqual(EXACT.map(Math.sign));
    // The smallest difference of all counts a quarter of the largest, and not a twentieth.
    expect(Math.abs(divided[2]! / divided[0]!)).toBeGreaterThan(0.2);
    expect(Math.abs(EXACT[2]! / EXACT[0]!)).toBeLessThan(0.05);
  });

  it("of turns at the same depth scale by (n − 1)/n, since their mean contains the turn itself", () => {
    const centered = ROWS["values of 0, centred by depth (PPO, A2C)"]!;
    // All first turns of these trees have one sibling, and no other turn at their depth.
    expect(centered[0]).toBeCloseTo(EXACT[0]! / 2, 12);
    expect(centered.map(Math.sign)).toEqual(EXACT.map(Math.sign));
  });

  it("are as docs/sibling-groups.md states them", () => {
    const page = readFileSync(new URL("../../../../docs/sibling-groups.md", import.meta.url), "utf8");
    const stated = [...page.matchAll(/^\|(.+)\|$/gmu)]
      .map(([, row]) => row!.split("|").map((cell) => cell.trim()))
      .filter(([, first]) => /^[−\d]/u.test(first ?? ""));
    expect(stated).toEqual(Object.entries(ROWS).map(([name, row]) => [name, ...row.map(figure)]));
  });
});
