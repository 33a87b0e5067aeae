import type { Json } from "@astra-rl/base";
import { describe, expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import { HarmWatch } from "../../src/diagnosis/index.js";

/** The watch's warnings, by step from 1. */
function warnings(
  rates: readonly (readonly [number | null, number | null])[],
  watch = new HarmWatch(100),
): number[] {
  return rates.flatMap(([probe, response], index) =>
    watch.add({ "harm/probe_rate": probe, "harm/response_rate": response }) === null ? [] : [index + 1],
  );
}
const steps = (count: number, probe: number, response: number) =>
  Array.from({ length: count }, () => [probe, response] as const);

describe("HarmWatch", () => {
  it("warns once, as soon as ten later steps show it, with both numbers and a remedy", () => {
    const watch = new HarmWatch(100);
    const run = [...steps(10, 0.05, 0.03), ...steps(10, 1, 0.05)];
    expect(warnings(run.slice(0, -1), watch)).toEqual([]);
    const warning = watch.add({ "harm/probe_rate": 1, "harm/response_rate": 0.05 });
    expect(warning).toContain(
      "rose from 5 % of the turns in the first 10 steps to 100 % in the last 10 steps",
    );
    expect(warning).toContain("harmful responses stayed (3 %, now 5 %)");
    expect(warning).toContain(
      'Lower the weight of harm terms that read the probe (combinedWeight, or harm of "both")',
    );
    expect(warnings(steps(50, 1, 0.05), watch)).toEqual([]);
  });

  it("compares the last ten steps, not all of them", () => {
    // After k steps at 0.2 the mean of the last ten is 0.02·k.
    expect(warnings([...steps(30, 0, 0), ...steps(20, 0.2, 0)])).toEqual([40]);
  });

  it("is silent while responses rise as well, or probes rise too little", () => {
    expect(warnings([...steps(10, 0, 0), ...steps(30, 0.9, 0.05)])).toEqual([]);
    expect(warnings([...steps(10, 0, 0.5), ...steps(30, 0.9, 0.44)])).toEqual([]);
    expect(warnings([...steps(10, 0, 0), ...steps(30, 0.19, 0)])).toEqual([]);
    expect(warnings([...steps(10, 0.9, 0), ...steps(30, 0, 0)])).toEqual([]);
  });

  it("warns if most harmful responses answer a harmful probe, for any number of them", () => {
    const said = (both: (probe: number) => number) => {
      const watch = new HarmWatch(100);
      return [...steps(10, 0.1, 0.1), ...steps(10, 0.6, 0.5)].flatMap(
        ([probe, response]) =>
          watch.add({
            "harm/probe_rate": probe,
            "harm/response_rate": response,
            "harm/both_rate": both(probe),
          }) ?? [],
      );
    };
    expect(said((probe) => (probe < 0.5 ? 0.02 : 0.4))).toEqual([
      expect.stringMatching(
        /rose from 10 % .* to 60 % .* 80 % of the harmful responses now answer a harmful probe/u,
      ),
    ]);
    expect(said((probe) => (probe < 0.5 ? 0.02 : 0.25))).toEqual([]);
  });

  it("is silent if the variance of the steps can explain the rise", () => {
    // Both windows hold only 0s and 1s: 3 of 10, then 5 of 10. The difference of 0.2 is one standard error of 0.22.
    const scattered = (ones: number) =>
      Array.from({ length: 10 }, (_, index) => [index < ones ? 1 : 0, 0] as const);
    expect(warnings([...scattered(3), ...scattered(5)])).toEqual([]);
    // 0 of 10, then 9 of 10: nine standard errors.
    expect(warnings([...scattered(0), ...scattered(9).reverse()])).toEqual([20]);
  });

  it("does not count steps in which nothing was scored", () => {
    const nothing = Array.from({ length: 30 }, () => [null, null] as const);
    expect(warnings([...steps(10, 0, 0), ...nothing, ...steps(9, 1, 0)])).toEqual([]);
    expect(warnings([...steps(10, 0, 0), ...nothing, ...steps(10, 1, 0)])).toEqual([50]);
  });

  it("resumes from its state exactly, and does not warn twice", () => {
    const run = [...steps(10, 0, 0), ...steps(10, 0.4, 0), ...steps(10, 1, 0)];
    const whole = warnings(run);
    expect(whole).toEqual([20]);
    for (const stop of [5, 10, 15, 20, 25]) {
      const first = new HarmWatch(100);
      const said = warnings(run.slice(0, stop), first);
      const second = new HarmWatch(100);
      second.setState(JSON.parse(JSON.stringify(first.getState())) as Json);
      expect([...said, ...warnings(run.slice(stop), second).map((step) => step + stop)]).toEqual(whole);
    }
    expect(() => new HarmWatch(100).setState({ first: [] })).toThrow(breaking("invalid-state"));
  });
});
