import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { UsageError } from "@astra-rl/base";
import {
  constantSchedule,
  cosineSchedule,
  createSchedule,
  linearSchedule,
  scheduleNames,
  type ScheduleName,
} from "../src/index.js";

// Factors computed by transformers: test/golden/make_optim.py.
const golden = JSON.parse(readFileSync(new URL("golden/optim.json", import.meta.url), "utf8")) as {
  schedules: { name: ScheduleName; warmupSteps: number; totalSteps: number; factors: number[] }[];
};

describe("schedules", () => {
  it.each(golden.schedules)(
    "$name with $warmupSteps of $totalSteps steps of warm-up equals transformers",
    (c) => {
      const schedule = createSchedule(c.name, c);
      c.factors.forEach((factor, step) => expect(schedule(step)).toBeCloseTo(factor, 12));
    },
  );

  it("end at 0 and stay there, except the constant one", () => {
    const lengths = { warmupSteps: 2, totalSteps: 10 };
    for (const step of [10, 11, 1000]) {
      expect(linearSchedule(lengths)(step)).toBe(0);
      expect(cosineSchedule(lengths)(step)).toBe(0);
      expect(constantSchedule(lengths)(step)).toBe(1);
    }
  });

  it("are 1 throughout for the constant one without options", () => {
    expect([0, 1, 99].map(constantSchedule())).toEqual([1, 1, 1]);
  });

  it.each([
    [() => createSchedule("step" as ScheduleName, {}), `"step"; available: ${scheduleNames.join(", ")}`],
    [() => linearSchedule({}), "linear schedule totalSteps: must be a whole number ≥ 1, got undefined"],
    [
      () => cosineSchedule({ totalSteps: 0 }),
      "cosine schedule totalSteps: must be a whole number ≥ 1, got 0",
    ],
    [
      () => constantSchedule({ warmupSteps: -1 }),
      "constant schedule warmupSteps: must be a whole number ≥ 0, got -1",
    ],
    [() => constantSchedule({ warmupSteps: 0.5 }), "must be a whole number ≥ 0, got 0.5"],
    [() => constantSchedule({ warmupSteps: Number.NaN }), "must be a whole number ≥ 0, got NaN"],
  ])("refuses invalid schedules (%#)", (make, message) => {
    expect(make).toThrow(UsageError);
    expect(make).toThrow(message);
  });
});
