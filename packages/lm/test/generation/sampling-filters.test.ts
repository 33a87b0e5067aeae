import { readFileSync } from "node:fs";
import { full, liveTensors, scope, tensor, type Tensor } from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { SeededStream } from "../../../base/test/support/seeded-stream.js";
import {
  candidateIds,
  drawCandidate,
  filterLogits,
  holdBack,
  likeliest,
  penalizeRepetition,
  sampledLogprobs,
  type Candidates,
} from "../../src/generation/sampling-filters.js";
import { idTensor } from "../../src/token-ids.js";
import { resolveSampling, type Sampling } from "../../src/generation/sampling.js";
import { logSoftmax, referenceFilter } from "../reference-decoding.js";

interface Expected {
  endIds: number[];
  logits: number[][];
  seen: number[][];
  cases: (Partial<Sampling> & { note: string; probabilities: number[][] })[];
}

const expected = JSON.parse(
  readFileSync(new URL("../golden/sampling-expected.json", import.meta.url), "utf8"),
) as Expected;

let before = 0;
beforeEach(() => (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

/** Scatters candidates over the vocabulary: log-probabilities [B, V]. */
function spread({ logprobs, ids }: Candidates, vocabulary: number): Tensor {
  if (ids === null) return logprobs;
  return full([logprobs.size(0), vocabulary], -Infinity).scatter(1, ids, logprobs);
}

/** Next-token probabilities after the whole chain of filters. */
function filtered(
  logits: readonly number[][],
  seen: readonly number[][],
  sampling: Partial<Sampling>,
  held: number[],
) {
  return scope(() => {
    let shaped = tensor(logits as number[][]);
    if (sampling.repetitionPenalty !== undefined) {
      shaped = penalizeRepetition(
        shaped,
        tensor(seen as number[][], { dtype: "int64" }),
        sampling.repetitionPenalty,
      );
    }
    if (held.length > 0) shaped = holdBack(shaped, idTensor(held, "cpu"));
    return spread(filterLogits(shaped, sampling), logits[0]!.length).exp().toArray() as number[][];
  });
}

function randomLogits(stream: SeededStream, rows: number, columns: number, spreadOf = 4): number[][] {
  return Array.from({ length: rows }, () =>
    Array.from({ length: columns }, () =>
      Math.fround((stream.uniform() + stream.uniform() - 1) * 2 * spreadOf),
    ),
  );
}

describe("filters", () => {
  it.each(expected.cases)("give transformers' distribution: $note", ({ probabilities, ...sampling }) => {
    const held = sampling.minNewTokens === undefined ? [] : expected.endIds;
    const actual = filtered(expected.logits, expected.seen, sampling, held);
    actual.forEach((row, at) =>
      row.forEach((value, id) => {
        expect(value).toBeCloseTo(probabilities[at]![id]!, 6);
        // Exactly the excluded candidates have probability zero.
        expect(value === 0).toBe(probabilities[at]![id] === 0);
      }),
    );
  });

  it.each([
    { topP: 0.3 },
    { topP: 0.9, temperature: 0.5 },
    { topP: 0.97, temperature: 3 },
    { topK: 700, topP: 0.9, temperature: 2 },
  ])(
    "are correct over a large vocabulary, with the nucleus guessed first or sorted in full: %o",
    (sampling) => {
      const stream = new SeededStream(3, "logits");
      // One row with a small nucleus, one with a nucleus larger than any guess, one with equal probabilities.
      const [peaked] = randomLogits(stream, 1, 3000, 20) as [number[]];
      const [flat] = randomLogits(stream, 1, 3000, 0.1) as [number[]];
      const equal = Array.from({ length: 3000 }, () => 1);
      for (const rows of [[peaked], [flat], [peaked, flat, peaked], [equal]]) {
        const actual = filtered(rows, [], sampling, []);
        rows.forEach((row, at) => {
          const reference = referenceFilter(row, new Set(), { maxNewTokens: 1, ...sampling }, []);
          let [difference, kept, keptReference] = [0, 0, 0];
          reference.forEach((value, id) => {
            // At the edge of the nucleus, float32 may keep one candidate more or less than float64.
            difference += Math.abs(value - actual[at]![id]!);
            kept += actual[at]![id]! > 0 ? 1 : 0;
            keptReference += value > 0 ? 1 : 0;
          });
          expect(Math.abs(kept - keptReference)).toBeLessThanOrEqual(1);
          if (row !== equal) expect(difference).toBeLessThan(2e-3);
        });
      }
    },
  );

  it("give a row the same distribution in any batch", () => {
    const stream = new SeededStream(4, "logits");
    const [peaked, flat] = [...randomLogits(stream, 1, 9000, 20), ...randomLogits(stream, 1, 9000, 1)];
    for (const sampling of [{ topP: 0.8 }, { topK: 50 }, { topK: 50, topP: 0.7 }, {}]) {
      const [alone, flatAlone] = [filtered([peaked!], [], sampling, []), filtered([flat!], [], sampling, [])];
      const beside = filtered([peaked!, flat!, peaked!], [], sampling, []);
      expect(beside).toEqual([alone[0], flatAlone[0], alone[0]]);
    }
  });

  it("rank equal logits by id", () => {
    const logits = [[1, 3, 3, 2, 3, 2, 0]];
    expect(scope(() => filterLogits(tensor(logits), { topK: 3 }).ids!.toArray())).toEqual([[1, 2, 4]]);
    expect(scope(() => filterLogits(tensor(logits), { topK: 5 }).ids!.toArray())).toEqual([[1, 2, 4, 3, 5]]);
    expect(scope(() => filterLogits(tensor(logits), { topP: 0.5 }).ids!.toArray())).toEqual([
      [1, 2, 4, 3, 5, 0, 6],
    ]);
    expect(scope(() => likeliest(tensor(logits)).toArray())).toEqual([1]);
  });

  it("keep at least one candidate, and none of probability zero", () => {
    const logits = [[-Infinity, 50, -Infinity, -50]];
    for (const sampling of [{ topP: 1e-9 }, { topK: 1 }, { topK: 3, topP: 1e-9 }]) {
      expect(filtered(logits, [], sampling, [])).toEqual([[0, 1, 0, 0]]);
    }
  });
});

describe("drawing", () => {
  const draw = (logits: number[][], uniforms: number[], sampling: Partial<Sampling> = {}) =>
    scope(() => {
      const candidates = filterLogits(tensor(logits), sampling);
      const u = tensor(Float64Array.from(uniforms), { dtype: "float64", shape: [uniforms.length, 1] });
      return (candidateIds(candidates, drawCandidate(candidates, u)).toArray() as number[][]).map(
        ([id]) => id!,
      );
    });

  it("inverts the cumulative distribution", () => {
    const logits = [0.1, 0.2, 0.3, 0.4].map(Math.log);
    const uniforms = [0, 0.0999, 0.1001, 0.2999, 0.3001, 0.5999, 0.6001, 0.9999];
    const rows = uniforms.map(() => logits);
    expect(draw(rows, uniforms)).toEqual([0, 0, 1, 1, 2, 2, 3, 3]);
    // Ranked: 3 (0.4), 2 (0.3), 1 (0.2), 0 (0.1).
    expect(draw(rows, uniforms, { topK: 3 })).toEqual([3, 3, 3, 3, 3, 2, 2, 1]);
  });

  it("never draws an excluded candidate, at either end of the uniforms", () => {
    const most = 1 - 2 ** -53;
    const ruled = [-Infinity, 0, -Infinity, 1, -Infinity];
    expect(draw([ruled, ruled], [0, most])).toEqual([1, 3]);
    const stream = new SeededStream(5, "edges");
    for (let trial = 0; trial < 200; trial += 1) {
      const [logits] = randomLogits(stream, 1, 100) as [number[]];
      const cut = logits.map((value, id) => (id % 3 === 0 ? value : -Infinity));
      for (const sampling of [{}, { topK: 60 }, { topP: 0.99 }]) {
        for (const id of draw([cut, cut], [0, most], sampling)) expect(id % 3).toBe(0);
      }
    }
  });

  it("draws in the proportions of the distribution (chi-square)", () => {
    const stream = new SeededStream(6, "draws");
    const [logits] = randomLogits(stream, 1, 12, 1.5) as [number[]];
    const count = 20_000;
    for (const sampling of [{}, { temperature: 0.7 }, { topK: 6 }, { topP: 0.8 }]) {
      const [probabilities] = filtered([logits], [], sampling, []);
      const counts = Array.from({ length: 12 }, () => 0);
      const uniforms = Array.from({ length: count }, () => stream.uniform());
      const ids = draw(
        uniforms.map(() => logits),
        uniforms,
        sampling,
      );
      for (const id of ids) counts[id]! += 1;
      let statistic = 0;
      let freedom = -1;
      probabilities!.forEach((probability, id) => {
        if (probability > 0) {
          statistic += (counts[id]! - probability * count) ** 2 / (probability * count);
          freedom += 1;
        } else expect(counts[id]).toBe(0);
      });
      expect(statistic).toBeLessThan(freedom + 5 * Math.sqrt(2 * freedom));
    }
  });

  it("reports log-probabilities under the full distribution", () => {
    const stream = new SeededStream(7, "logits");
    const logits = randomLogits(stream, 3, 50);
    const actual = scope(() =>
      sampledLogprobs(tensor(logits), idTensor([4, 9, 0], "cpu").view([3, 1])).toArray(),
    );
    (actual as number[][]).forEach(([value], row) =>
      expect(value).toBeCloseTo(logSoftmax(logits[row]!)[[4, 9, 0][row]!]!, 5),
    );
    // In 16 bits it is that of the rounded logits, with sums in float32.
    const [rounded, narrow] = scope(() => {
      const half = tensor(logits).to("bfloat16");
      const ids = idTensor([4, 9, 0], "cpu").view([3, 1]);
      return [half.to("float32").toArray(), sampledLogprobs(half, ids).toArray()] as number[][][];
    });
    narrow!.forEach(([value], row) =>
      expect(value).toBeCloseTo(logSoftmax(rounded![row]!)[[4, 9, 0][row]!]!, 5),
    );
  });
});

describe("resolveSampling", () => {
  it.each<[Partial<Sampling>, string]>([
    [{ maxNewTokens: 0 }, "sampling.maxNewTokens: must be a whole number of at least 1, got 0"],
    [{ maxNewTokens: 1.5 }, "sampling.maxNewTokens"],
    [{ minNewTokens: 9 }, "sampling.minNewTokens: must be a whole number from 0 to maxNewTokens (8), got 9"],
    [{ temperature: 0 }, "greedy: true"],
    [{ temperature: NaN }, "sampling.temperature"],
    [{ topK: -1 }, "sampling.topK"],
    [{ topP: 0 }, "sampling.topP"],
    [{ topP: 1.1 }, "sampling.topP"],
    [{ repetitionPenalty: 0 }, "sampling.repetitionPenalty"],
    [{ stopStrings: ["a", ""] }, "sampling.stopStrings"],
    [{ stopIds: [-3] }, "sampling.stopIds"],
  ])("refuses %o", (changes, message) => {
    expect(() => resolveSampling({ maxNewTokens: 8, ...changes })).toThrow(message);
  });
});

// Filters are pure: they never modify their inputs.
describe("pure functions", () => {
  it("leave the logits unchanged", () => {
    const logits: Tensor = tensor([[3, 1, 2]]);
    scope(() => {
      const shaped = holdBack(
        penalizeRepetition(logits, tensor([[0, 0]], { dtype: "int64" }), 2),
        idTensor([1], "cpu"),
      );
      filterLogits(shaped, { topP: 0.5, temperature: 0.5 });
    });
    expect(logits.toArray()).toEqual([[3, 1, 2]]);
    logits.dispose();
  });
});
