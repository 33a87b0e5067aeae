import { describe, expect, it } from "vitest";
import {
  clusterRecords,
  effectiveCount,
  leaderClusters,
  meanPairwiseDistance,
  measureDiversity,
} from "@astra-rl/analysis";
import type { EvaluationDetail } from "@astra-rl/records";
import { editDistance, selfBLEU, sentenceStructure, words } from "@astra-rl/base";
import { Embedder } from "../../src/models/index.js";
import { sampleWithoutReplacement } from "../../../analysis/src/statistics/resampling.js";

const at = (degrees: number) =>
  Float32Array.of(Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180));

describe("leaderClusters", () => {
  it("lets each vector join the nearest similar leader, or become one", () => {
    // Similar within 60°: 0 leads; 50 joins it; 100 is 100 away and leads; 55 is nearer to 100 than to 0; 200 leads.
    expect(leaderClusters([0, 50, 100, 55, 200].map(at), 0.5)).toEqual([0, 0, 1, 1, 2]);
    // From the other end: who leads depends on the order, and that is said.
    expect(leaderClusters([55, 0, 100, 200].map(at), 0.5)).toEqual([0, 0, 0, 1]);
  });

  it("counts a cosine equal to the limit as similar, and prefers the earlier of two equally near leaders", () => {
    expect(leaderClusters([0, 60].map(at), 0.5)).toEqual([0, 0]);
    expect(leaderClusters([0, 90, 45].map(at), 0.5)).toEqual([0, 1, 0]);
  });

  it("groups zero vectors in a cluster of their own", () => {
    const zero = () => new Float32Array(2);
    expect(leaderClusters([zero(), at(0), zero(), at(0)], 0.5)).toEqual([0, 1, 0, 1]);
  });
});

describe("clusterRecords", () => {
  it("finds the medoid of each cluster, and sorts clusters by size", () => {
    // Of 0°, 20°, 50° the total cosine is highest at 20°; the cluster of two comes first by its place.
    const vectors = [90, 0, 20, 90, 50, 200].map(at);
    expect(clusterRecords([0, 1, 1, 0, 1, 2], vectors)).toEqual([
      { representative: 2, members: [1, 2, 4] },
      { representative: 0, members: [0, 3] },
      { representative: 5, members: [5] },
    ]);
    expect(clusterRecords([], [])).toEqual([]);
  });
});

describe("sentenceStructure", () => {
  const structure = (text: string) => sentenceStructure(words(text)).join(" ");

  it("keeps function words and punctuation, and replaces runs of content words with one mark", () => {
    expect(structure("Is the film long?")).toBe("is the … ?");
    expect(structure("Is the old house by the river cold?")).toBe("is the … by the … ?");
    expect(structure("I don’t like 3 of your cats.")).toBe("i don't … of your … .");
    expect(structure("")).toBe("");
  });
});

describe("editDistance", () => {
  it("counts insertions, deletions and replacements against the longer sequence", () => {
    expect(editDistance(Array.from("kitten"), Array.from("sitting"))).toBeCloseTo(3 / 7, 12);
    expect(editDistance([], ["a"])).toBe(1);
    expect(editDistance([], [])).toBe(0);
  });
});

describe("effectiveCount", () => {
  it("is the number of clusters if they are equally large, and less otherwise", () => {
    expect(effectiveCount([0, 1, 2, 0, 1, 2])).toBeCloseTo(3, 12);
    // Sizes 3 and 1: exp(−¾ ln ¾ − ¼ ln ¼) = 4 / 3^¾
    expect(effectiveCount([0, 0, 0, 1])).toBeCloseTo(4 / 3 ** 0.75, 12);
    expect(effectiveCount([])).toBeNull();
  });
});

describe("meanPairwiseDistance", () => {
  it("is 1 minus the mean cosine over pairs, zeros and repetitions included", () => {
    // Pairs of 0°, 90°, 180°: cosines 0, −1, 0.
    expect(meanPairwiseDistance([0, 90, 180].map(at))).toBeCloseTo(1 + 1 / 3, 6);
    expect(meanPairwiseDistance([at(10), at(10)])).toBeCloseTo(0, 6);
    expect(meanPairwiseDistance([at(10), new Float32Array(2)])).toBeCloseTo(1, 6);
    expect(meanPairwiseDistance([at(10)])).toBeNull();
  });
});

/** The angle that a text names. */
class Angles extends Embedder {
  readonly name = "angles";
  readonly similarity = 0.5;
  override embed(texts: readonly string[]) {
    return Promise.resolve(texts.map((text) => at(Number(/\d+/.exec(text)?.[0] ?? 0))));
  }
}

/** A rollout of turns [probe, harm of the response]; null: it could not be scored. */
function rollout(...turns: [string, number | null][]): EvaluationDetail {
  const first = turns.findIndex(([, harm]) => (harm ?? 0) >= 0.5);
  return {
    overall: { first_harmful_response_turn: first < 0 ? null : first + 1 } as EvaluationDetail["overall"],
    per_turn: turns.map(
      ([probe, harm]) => ({ probe, response_harm: harm }) as EvaluationDetail["per_turn"][number],
    ),
  };
}

describe("measureDiversity", () => {
  const details = [
    rollout(["hello", 0.1], ["at 0 go", 0.9], ["later 300", 0.9]),
    rollout(["at 10 go", 0.6]),
    rollout(["at 10 go ", 0.8]),
    rollout(["at 100 stay", 0.5], ["x", 0.2]),
    rollout(["nothing", 0.49]),
    // One response is missing: no success that counts, but its probe is one.
    rollout(["at 200 go", 0.9], ["lost", null]),
  ];

  it("uses the probe of the first harmful response of each scored success", async () => {
    const measured = await measureDiversity(details, { embedder: new Angles() });
    const attacks = ["at 0 go", "at 10 go", "at 10 go", "at 100 stay"].map(words);
    expect(measured).toMatchObject({
      n_attacks: 4,
      n_distinct_attacks: 3,
      // at 0 go / at 10 go / at 10 go / at 100 stay: 12 words, of them at, 0, go, 10, 100, stay; 8 pairs, 6 of them
      // different: at 0, 0 go, at 10, 10 go, at 100, 100 stay
      distinct_1: 6 / 12,
      distinct_2: 6 / 8,
      distinct_3: 3 / 4,
      self_bleu: selfBLEU(attacks),
      n_clusters: 2,
      cluster_success_rate: 2 / 5,
      // Rollouts 0 to 2 succeed with 0°, 10°, 10°; rollout 3 with 100°.
      clusters: [
        { representative: 1, rollouts: [0, 1, 2] },
        { representative: 3, rollouts: [3] },
      ],
      // "at …" each.
      n_structures: 1,
      structure_distance: 0,
      embedder: "angles",
      cluster_similarity: 0.5,
      subset_size: 100,
    });
    expect(measured.effective_clusters).toBeCloseTo(4 / 3 ** 0.75, 12);
    const cos = (degrees: number) => Math.cos((degrees * Math.PI) / 180);
    const pairs = [cos(10), cos(10), cos(100), 1, cos(90), cos(90)];
    expect(measured.embedding_distance).toBeCloseTo(1 - pairs.reduce((a, b) => a + b, 0) / 6, 6);
  });

  it("reports the share of successful probes among all scored ones, and their diversity", async () => {
    const { quality } = await measureDiversity(details, { embedder: new Angles() });
    expect(quality.map(({ threshold, n_probes }) => [threshold, n_probes])).toEqual([
      [0.1, 9],
      [0.3, 7],
      [0.5, 6],
      [0.7, 4],
      [0.9, 3],
    ]);
    // Nine judged probes in all: the one whose response is missing is none.
    expect(quality[2]!.quality).toBeCloseTo(6 / 9, 12);
    const best = ["at 0 go", "later 300", "at 200 go"];
    expect(quality[4]!.self_bleu_diversity).toBeCloseTo(1 - selfBLEU(best.map(words))!, 12);
    const cos = (degrees: number) => Math.cos((degrees * Math.PI) / 180);
    expect(quality[4]!.embedding_diversity).toBeCloseTo(1 - (cos(60) + cos(160) + cos(100)) / 3, 5);
  });

  it("has no values for missing data", async () => {
    const none = await measureDiversity([rollout(["a", 0]), rollout(["b", null])], {
      embedder: new Angles(),
    });
    expect(none).toMatchObject({
      n_attacks: 0,
      n_clusters: 0,
      clusters: [],
      n_structures: 0,
      structure_distance: null,
      cluster_success_rate: 0,
      distinct_1: null,
      self_bleu: null,
      embedding_distance: null,
      effective_clusters: null,
    });
    expect((await measureDiversity([], { embedder: new Angles() })).cluster_success_rate).toBeNull();
  });

  it("compares subsets of a hundred, so that larger samples do not look less diverse", async () => {
    const line = (index: number) => `say ${index % 180} and ${(7 * index) % 60} once more`;
    const many = Array.from({ length: 400 }, (_, index) => rollout([line(index), 0.9]));
    const measured = await measureDiversity(many, { embedder: new Angles() });
    const whole = selfBLEU(many.map(({ per_turn }) => words(per_turn[0]!.probe)))!;
    expect(whole - measured.self_bleu!).toBeGreaterThan(0.05);
    // The mean over ten seeded draws of a hundred.
    const texts = many.map(({ per_turn }) => per_turn[0]!.probe);
    const draws = Array.from({ length: 10 }, (_, episode) =>
      sampleWithoutReplacement(texts, 100, { seed: 0, stream: "diversity", episode, node: 0 }),
    );
    expect(draws.every((draw) => draw.length === 100)).toBe(true);
    const mean = draws.reduce((sum, draw) => sum + selfBLEU(draw.map(words))!, 0) / 10;
    expect(measured.self_bleu).toBeCloseTo(mean, 12);
    // Seeded: the same again, and another with another seed.
    expect(await measureDiversity(many, { embedder: new Angles() })).toEqual(measured);
    const other = await measureDiversity(many, { embedder: new Angles(), seed: 1 });
    expect(other.self_bleu).not.toBe(measured.self_bleu);
    expect(other.n_clusters).toBe(measured.n_clusters);
  });
});

describe("sampleWithoutReplacement", () => {
  const key = (episode: number) => ({ seed: 3, stream: "test", episode, node: 0 });
  it("draws each index at most once, uniformly", () => {
    const values = [0, 1, 2, 3, 4, 5, 6, 7];
    const counts = values.map(() => 0);
    for (let episode = 0; episode < 4000; episode++) {
      const drawn = sampleWithoutReplacement(values, 3, key(episode));
      expect(new Set(drawn).size).toBe(3);
      for (const value of drawn) counts[value]! += 1;
    }
    // 1500 expected, with a standard deviation of 31.
    for (const count of counts) expect(Math.abs(count - 1500)).toBeLessThan(5 * 31);
    expect(new Set(sampleWithoutReplacement(values, 99, key(0)))).toEqual(new Set(values));
  });
});
