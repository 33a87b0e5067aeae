import { expect, it } from "vitest";
import { doubt, type EvaluationSummary, type ReportEvaluation, type ReportRun } from "@astra-rl/records";
import { overSeeds, seedsTable } from "../../src/report/over-seeds.js";
import { differencesOf } from "../../src/report/run-groups.js";

const run = (seed: number, rate = 0.1): ReportRun => ({
  label: `seed-${seed}-${rate}`,
  run: null,
  configuration: { seed, training: { learningRate: rate } },
  metrics: [],
  evaluations: [],
  graphs: [],
  doubts: [],
  graphs_total: 0,
});

const evaluation = (
  of: ReportRun,
  success: number,
  more: Partial<EvaluationSummary> = {},
): ReportEvaluation => ({
  label: of.label,
  step: 1,
  run: of.label,
  summary: {
    success_rate: success,
    harmless_probe_success_rate: success / 2,
    mean_probe_nll: 1,
    diversity: { cluster_success_rate: success / 5 },
    doubts: [],
    ...more,
  } as unknown as EvaluationSummary,
  measured: null,
  details: [],
});

const found = (runs: readonly ReportRun[], evaluations: readonly ReportEvaluation[]) =>
  overSeeds(runs, evaluations, differencesOf(runs));

it("is the mean of the last evaluation of each seed, with Student's t interval, and not the last seed's", () => {
  const runs = [1, 2, 3].map((seed) => run(seed));
  const evaluations = runs.flatMap((each, at) => [evaluation(each, 0.9), evaluation(each, 0.5 + at / 100)]);
  const [all, ...others] = found(runs, evaluations);
  expect(others).toEqual([]);
  expect(all).toMatchObject({ label: "", runs: [0, 1, 2], evaluations: [1, 3, 5], n_without_verdict: 0 });
  // s = 0.01 and t(0.975, 2) = 4.30265: 0.51 ± 0.0248414.
  expect(all!.success_rate!.mean).toBeCloseTo(0.51, 12);
  expect(all!.success_rate!.interval!.lower).toBeCloseTo(0.4851586, 6);
  expect(all!.success_rate!.interval!.upper).toBeCloseTo(0.5348414, 6);
  expect(all!.mean_probe_nll).toEqual({ mean: 1, interval: null, n_seeds: 3 });
  expect(seedsTable([all!]).rows).toEqual([
    [
      "all",
      "3",
      "51.0 % (48.5 % to 53.5 %)",
      "10.2 % (9.7 % to 10.7 %)",
      "25.5 % (24.3 % to 26.7 %)",
      "1.00 (no interval)",
    ],
  ]);
});

it("is for each configuration, of at least two seeds; a share stays between 0 and 1", () => {
  const runs = [run(1), run(2), run(1, 0.2), run(2, 0.2), run(3, 0.2), run(1, 0.3), run(1, 0.3)];
  const rates = [0, 1, 0, 0, 0.3, 1, 1];
  const each = found(
    runs,
    runs.map((of, at) => evaluation(of, rates[at]!)),
  );
  expect(each.map(({ label, runs: members }) => [label, members])).toEqual([
    ["learningRate=0.1", [0, 1]],
    ["learningRate=0.2", [2, 3, 4]],
  ]);
  expect(each[0]!.success_rate).toEqual({ mean: 0.5, interval: null, n_seeds: 2 });
  expect(each[1]!.success_rate!.interval!.lower).toBe(0);
});

it("excludes inconclusive evaluations, and counts them", () => {
  const runs = [1, 2, 3, 4].map((seed) => run(seed));
  const failed = { doubts: [doubt("failed-turns", "all turns failed")] };
  const doubtful = { doubts: [doubt("unfinished-responses", "all were cut")] };
  const [all] = found(runs, [
    evaluation(runs[0]!, 0.1),
    evaluation(runs[1]!, 0, failed),
    evaluation(runs[2]!, 0.3, doubtful),
  ]);
  expect(all).toMatchObject({ runs: [0, 1, 2], evaluations: [0, 2], n_without_verdict: 1 });
  expect(all!.success_rate!.mean).toBeCloseTo(0.2, 12);
  expect(seedsTable([all!]).rows[0]![1]).toBe("2, and 1 without a verdict");
});
