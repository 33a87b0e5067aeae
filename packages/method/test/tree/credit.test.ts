import { UsageError } from "@astra-rl/base";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { rewardCredit, backUp, type Credit } from "../../src/tree/index.js";
import { TextGraph, TextNode } from "../support/texts.js";

/** A node named by its probe; NaN makes it fail. */
function node(probe: string, reward: number, children: TextNode[] = []): TextNode {
  const failure = Number.isNaN(reward) ? ({ stage: "scorer", message: "down", attempts: 1 } as const) : null;
  return new TextNode({ context: "c", probe, response: "", reward, children, failure });
}

/** The credit of each node by its probe. */
function named(credit: Credit<string, string>, children: TextNode[]): Record<string, number> {
  const graph = new TextGraph({ context: "c", children });
  return Object.fromEntries([...credit(graph)].map(([{ probe }, value]) => [probe, value]));
}

describe("rewardCredit", () => {
  it("is the reward, and absent for failed turns", () => {
    expect(named(rewardCredit, [node("a", 0, [node("b", -2), node("c", NaN)])])).toEqual({ a: 0, b: -2 });
  });
});

describe("backUp", () => {
  const tree = () => [
    // a: 1 + 0.5·max(2 + 0.5·4, 3) = 1 + 0.5·4 = 3
    node("a", 1, [node("aa", 2, [node("aaa", 4), node("aab", -8)]), node("ab", 3)]),
    // b: −1 + 0.5·(−6) = −4
    node("b", -1, [node("ba", -6)]),
    node("c", 7),
  ];

  it("adds the discounted best of the children after their own back-up", () => {
    expect(named(backUp({ op: "max", gamma: 0.5 }), tree())).toEqual({
      a: 3,
      aa: 4,
      aaa: 4,
      aab: -8,
      ab: 3,
      b: -4,
      ba: -6,
      c: 7,
    });
  });

  it("adds their discounted mean", () => {
    // aa: 2 + 0.5·(4 − 8)/2 = 1; a: 1 + 0.5·(1 + 3)/2 = 2
    expect(named(backUp({ op: "mean", gamma: 0.5 }), tree())).toMatchObject({ a: 2, aa: 1, ab: 3, b: -4 });
  });

  it("discounts by 0.9 by default, and ignores later turns with 0", () => {
    expect(named(backUp(), tree())["b"]).toBeCloseTo(-1 - 0.9 * 6, 12);
    expect(named(backUp({ gamma: 0 }), tree())).toEqual(named(rewardCredit, tree()));
  });

  it("does not count failed turns as 0", () => {
    // The best known value is −2, not the 0 of an unknown one.
    const children = [node("failed", NaN, [node("below", 9)]), node("known", -2)];
    expect(named(backUp({ op: "max", gamma: 0.5 }), [node("a", 1, children)])).toEqual({
      a: 0,
      below: 9,
      known: -2,
    });
    expect(named(backUp({ op: "mean", gamma: 0.5 }), [node("a", 1, children)])["a"]).toBe(0);
    // The later turns are unknown.
    expect(named(backUp({ gamma: 0.5 }), [node("a", 1, [node("failed", NaN)])])).toEqual({ a: 1 });
  });

  it.each([
    [{ op: "min" }, /op must be "max" or "mean", got "min"/u],
    [{ gamma: 1.1 }, /gamma must be a number from 0 to 1, got 1.1/u],
    [{ gamma: NaN }, /got NaN/u],
  ])("refuses %j", (options, message) => {
    expect(() => backUp(options as never)).toThrow(message);
    expect(() => backUp(options as never)).toThrow(UsageError);
  });
});

describe("every credit", () => {
  const reward = fc.oneof({ weight: 5, arbitrary: fc.integer({ min: -9, max: 9 }) }, fc.constant(NaN));
  const { tree } = fc.letrec<{ tree: TextNode }>((tie) => ({
    tree: fc
      .tuple(reward, fc.oneof({ maxDepth: 3 }, fc.constant([]), fc.array(tie("tree"), { maxLength: 3 })))
      .map(([value, children]) =>
        Object.freeze(node("p", value, Object.freeze(children as TextNode[]) as TextNode[])),
      ),
  }));

  it.each([
    ["rewardCredit", rewardCredit as Credit<string, string>],
    ["backUp max", backUp({ op: "max" }) as Credit<string, string>],
    ["backUp mean", backUp({ op: "mean" }) as Credit<string, string>],
  ])("%s does not change nodes and credits no failed one", (_, credit) => {
    fc.assert(
      fc.property(fc.array(tree, { maxLength: 3 }), (children) => {
        const graph = Object.freeze(
          new TextGraph({ context: "c", children: Object.freeze(children) as TextNode[] }),
        );
        const before = JSON.stringify(graph);
        for (const [credited, value] of credit(graph)) {
          expect(credited.failed).toBe(false);
          expect(Number.isFinite(value)).toBe(true);
        }
        expect(JSON.stringify(graph)).toBe(before);
      }),
    );
  });
});
