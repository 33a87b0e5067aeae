import { afterEach, describe, expect, it, vi } from "vitest";
import { distributed, tensor } from "@astra-rl/torch";
import { Conversation, Message } from "@astra-rl/lm";
import {
  Graph,
  growInShares,
  inShares,
  Node,
  shareOf,
  Harness,
  ASTSampler,
  type Algorithm,
  type NodeFields,
  type Sampler,
  type System,
} from "@astra-rl/method";
import { packGraphs } from "../../../method/src/tree/graph-parcel.js";
import {
  outcomeOfRanks,
  reduceGradients,
  sumOfRanks,
  totalsOfRanks,
} from "../../../method/src/training/ranks.js";

afterEach(() => vi.restoreAllMocks());

describe("shares", () => {
  it.each([
    [8, 2],
    [7, 3],
    [2, 4],
    [0, 2],
    [100, 7],
  ])("of %d values among %d ranks are disjoint, complete, in order and even", (count, ranks) => {
    const values = Array.from({ length: count }, (_, index) => index);
    const shares = Array.from({ length: ranks }, (_, rank) => shareOf(values, { rank, worldSize: ranks }));
    expect(shares.flatMap(({ share }) => share)).toEqual(values);
    for (const { share, first } of shares) {
      if (share.length > 0) expect(share[0]).toBe(first);
      expect(share.length).toBeGreaterThanOrEqual(Math.floor(count / ranks));
      expect(share.length).toBeLessThanOrEqual(Math.ceil(count / ranks));
    }
  });

  it("keep related values together", () => {
    const values = ["a", "a", "a", "a", "a", "b", "b", "c"];
    const shares = (worldSize: number) =>
      Array.from({ length: worldSize }, (_, rank) =>
        shareOf(values, { rank, worldSize, together: (value) => value }).share.join(""),
      );
    expect(shares(2)).toEqual(["aaaaa", "bbc"]);
    expect(shares(3)).toEqual(["aaaaa", "", "bbc"]);
    expect(shares(8).join("")).toBe("aaaaabbc");
  });

  it("are everything in a single process", async () => {
    expect(await inShares([1, 2, 3], async (share, first) => [share, first])).toEqual([[[1, 2, 3], 0]]);
  });
});

describe("batches", () => {
  /** The last batch has one step, so that one of two ranks has nothing of it. */
  function batchesOf(rank: number) {
    vi.spyOn(distributed, "worldSize").mockReturnValue(2);
    vi.spyOn(distributed, "rank").mockReturnValue(rank);
    const system = {} as System;
    const algorithm = {
      system,
      needs: [],
      checkSampler: () => undefined,
      checkCredit: () => undefined,
      weight: (steps: readonly number[]) => steps.length / steps.length,
      collate: (steps: readonly number[]) => {
        if (steps.length === 0) throw new Error("nothing to collate");
        return [...steps];
      },
    } as unknown as Algorithm<Conversation, Message, number, number[]>;
    class Cutting extends Harness<Conversation, Message, number, number[]> {
      batches(steps: readonly number[]) {
        return this.cut([...steps]);
      }
    }
    return new Cutting({ system } as Sampler, algorithm, { batchSize: 4 }).batches([1, 2, 3, 4, 5]);
  }

  it("are divided, and an empty share is passed to no method of the algorithm", () => {
    expect(batchesOf(0)).toEqual([
      { batch: [1, 2], size: 2, weight: 1 },
      { batch: undefined, size: 0, weight: 0 },
    ]);
    expect(batchesOf(1)).toEqual([
      { batch: [3, 4], size: 2, weight: 1 },
      { batch: [5], size: 1, weight: 1 },
    ]);
  });
});

describe("agreement of ranks", () => {
  const gather = (others: unknown[]) =>
    vi
      .spyOn(distributed, "allGatherObject")
      .mockImplementation((own) => Promise.resolve([own, ...others]) as never);

  it.each([
    ["all are finite", [{ stop: false, isFinite: true }], "added"],
    ["a loss is not finite", [{ stop: false, isFinite: false }], "not finite"],
    ["a rank stops", [{ stop: true, isFinite: false }], "stopped"],
  ])("decides about a batch if %s", async (_, others, outcome) => {
    gather(others);
    expect(await outcomeOfRanks({ stop: false, isFinite: true })).toBe(outcome);
  });

  it("stops by the mean over all shares of a batch, for any division", async () => {
    // (2·0.1 + 6·0.02) / 8 = 0.04: over the limit for one share alone, and not for both.
    const rule = { value: 0.1, weight: 2, limit: 0.05 };
    const rest = { stop: { value: 0.02, weight: 6, limit: 0.05 }, isFinite: true };
    expect(await outcomeOfRanks({ stop: rule, isFinite: true })).toBe("limit exceeded");
    gather([rest]);
    expect(await outcomeOfRanks({ stop: rule, isFinite: true })).toBe("added");
    gather([{ ...rest, stop: { ...rest.stop, value: 0.04 } }]);
    expect(await outcomeOfRanks({ stop: rule, isFinite: true })).toBe("limit exceeded");
    // An empty share has no influence.
    gather([{ stop: false, isFinite: true }]);
    expect(await outcomeOfRanks({ stop: rule, isFinite: true })).toBe("limit exceeded");
  });

  it("sums what each rank did, and counts once what all did together", async () => {
    const own = {
      loss: 1,
      weight: 2,
      logs: new Map([["a", 1]]),
      norm: 3,
      updates: 4,
      skipped: 1,
      epochs: 2,
      reduced: 5,
    };
    gather([{ ...own, loss: 10, weight: 20, logs: new Map([["b", 5]]) }]);
    expect(await totalsOfRanks(own)).toEqual({
      ...own,
      loss: 11,
      weight: 22,
      logs: new Map([
        ["a", 1],
        ["b", 5],
      ]),
    });
  });

  it("counts tokens of all ranks, and none if no rank counts", () => {
    expect(
      sumOfRanks([
        { read: 1, generated: null },
        { read: 2, generated: null, trained: 3 },
      ]),
    ).toEqual({
      read: 3,
      generated: null,
      trained: 3,
    });
  });

  it("sums the gradients that any rank has, and leaves others absent", async () => {
    const sum = vi.spyOn(distributed, "allReduce_").mockResolvedValue(undefined);
    vi.spyOn(distributed, "allGatherObject").mockResolvedValue([
      [true, false, false],
      [false, true, false],
    ]);
    const parameters = [1, 2, 3].map((value) => tensor([value], { requiresGrad: true }));
    parameters[0]!.grad = tensor([5]);
    await reduceGradients(parameters);
    expect(parameters.map(({ grad }) => grad?.toArray() ?? null)).toEqual([[5], [0], null]);
    expect(sum.mock.calls[0]![0]).toHaveLength(2);
    for (const parameter of parameters) {
      parameter.grad?.dispose();
      parameter.dispose();
    }
  });
});

describe("graphs from another rank", () => {
  it("consist of the sampler's nodes, also if nodeFrom is overridden", async () => {
    class Marked extends Node {}
    class Marking extends ASTSampler {
      override nodeFrom(fields: NodeFields): Node {
        return new Marked(fields);
      }
    }
    const grown = (episode: number, type: new (fields: NodeFields) => Node) => {
      const context = Conversation.of(`Prompt ${episode}.`);
      const fields = { context, probe: new Message("tester", "a"), response: new Message("target", "b") };
      return new Graph({ context, children: [new type({ ...fields, reward: episode })], episode });
    };
    vi.spyOn(distributed, "worldSize").mockReturnValue(2);
    vi.spyOn(distributed, "rank").mockReturnValue(0);
    vi.spyOn(distributed, "allGatherObject").mockImplementation((own) =>
      Promise.resolve([
        own,
        structuredClone({ graphs: packGraphs([grown(1, Marked)]), about: ["of the other"] }),
      ] as never),
    );
    const sampler = new Marking({ stateOf: (text: string) => Conversation.of(text) } as unknown as System, [
      "Hello.",
    ]);
    const { graphs, about } = await growInShares([0, 1], sampler, async (share) => ({
      graphs: share.map((episode) => grown(episode, Marked)),
      about: ["of this"],
    }));
    expect(graphs.map(({ episode }) => episode)).toEqual([0, 1]);
    for (const { children } of graphs) expect(children[0]).toBeInstanceOf(Marked);
    expect(about).toEqual(["of this", "of the other"]);
  });
});
