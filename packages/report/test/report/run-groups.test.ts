import { describe, expect, it } from "vitest";
import type { MetricsRecord, ReportRun } from "@astra-rl/records";
import { differencesOf, groupsOf } from "../../src/report/run-groups.js";

const run = (configuration: Record<string, unknown>, rewards: readonly number[]): ReportRun => ({
  label: "run",
  run: null,
  configuration,
  metrics: rewards.map((reward, at): MetricsRecord => ({
    step: at + 1,
    loss: null,
    "reward/mean": reward,
    version: 1,
  })),
  evaluations: [],
  graphs: [],
  doubts: [],
  graphs_total: 0,
});

const configuration = (seed: number, rate = 0.1) => ({
  seed,
  training: { rate, betas: [0.9, 0.99] },
  models: {},
});

describe("what runs differ in", () => {
  it("names options by their paths, with the value of each run", () => {
    const runs = [
      run(configuration(1), []),
      run({ ...configuration(2, 0.2), extra: "x" }, []),
      run({ seed: 1, training: { rate: 0.1, betas: [0.9, 0.5] }, models: {} }, []),
    ];
    expect(differencesOf(runs)).toEqual([
      { key: "seed", values: ["1", "2", "1"] },
      { key: "training.rate", values: ["0.1", "0.2", "0.1"] },
      { key: "training.betas[1]", values: ["0.99", "0.99", "0.5"] },
      { key: "extra", values: ["–", "x", "–"] },
    ]);
    expect(differencesOf([runs[0]!])).toEqual([]);
  });
});

describe("seeds together", () => {
  const grouped = (runs: readonly ReportRun[]) => groupsOf(runs, differencesOf(runs));

  it("are at least three runs that differ in the seed alone", () => {
    const three = [1, 2, 3].map((seed) => run(configuration(seed), [seed]));
    expect(grouped(three).map(({ label, runs }) => [label, runs])).toEqual([["3 seeds", [0, 1, 2]]]);
    expect(grouped(three.slice(1))).toEqual([]);
    const mixed = [...three, run(configuration(4, 0.2), [1]), run(configuration(5, 0.2), [1])];
    expect(grouped(mixed).map(({ label, runs }) => [label, runs])).toEqual([
      ["rate=0.1, 3 seeds", [0, 1, 2]],
    ]);
  });

  it("have the mean, and an interval that contains it; none if all values are equal", () => {
    const [group] = grouped([0, 2, 4, 6].map((reward, seed) => run(configuration(seed), [reward, 7])));
    const { middle, lower, upper } = group!.curves["reward/mean"]!;
    expect(middle).toEqual([3, 7]);
    expect([lower[1], upper[1]]).toEqual([7, 7]);
    // s² = 20/3; t(3) at 0.975 = 3.18244630528371.
    const half = (3.18244630528371 * Math.sqrt(20 / 3)) / 2;
    expect(lower[0]).toBeCloseTo(3 - half, 10);
    expect(upper[0]).toBeCloseTo(3 + half, 10);
  });

  it("end where the first run ends, since fewer runs would be another group", () => {
    const [group] = grouped(
      [
        [1, 2, 3],
        [1, 2, 3],
        [1, 2],
      ].map((rewards, seed) => run(configuration(seed), rewards)),
    );
    expect(group!.curves["reward/mean"]!.middle).toEqual([1, 2, null]);
  });

  it("of long runs are means over windows", () => {
    const long = Array.from({ length: 400 }, (_, at) => at);
    const [group] = grouped([1, 2, 3].map((seed) => run(configuration(seed), long)));
    expect(group!.steps).toHaveLength(200);
    expect(group!.steps.slice(0, 2)).toEqual([2, 4]);
    expect(group!.curves["reward/mean"]!.middle.slice(0, 2)).toEqual([0.5, 2.5]);
  });
});
