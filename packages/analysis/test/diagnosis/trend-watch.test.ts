import { UsageError, type Json } from "@astra-rl/base";
import { describe, expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import {
  RunDiagnosis,
  TRENDS,
  TrendWatch,
  WARNING_RULES,
  type WatchedValues,
} from "../../src/diagnosis/index.js";

/** Steps with figures that scatter a little around a mean, so that they have a standard error. */
const around = (count: number, key: string, mean: number, rest: WatchedValues = {}): WatchedValues[] =>
  Array.from({ length: count }, (_, index) => ({
    "turns/empty_probes": 0,
    ...rest,
    [key]: mean * (index % 2 === 0 ? 1.01 : 0.99),
  }));

const said = (steps: readonly WatchedValues[], watches = new RunDiagnosis(100)) =>
  steps.flatMap((values, index) =>
    watches.add(values).map(([rule, warning]) => [index + 1, rule, warning] as const),
  );

describe("RunDiagnosis", () => {
  it.each<[string, WatchedValues[], WatchedValues[], RegExp[]]>([
    [
      "distinct",
      around(10, "probes/distinct", 90, { "turns/done": 100 }),
      around(10, "probes/distinct", 20, { "turns/done": 100 }),
      [/from 90 % in the first 10 steps to 20 % in the last 10/u, /narrowing to a few lines/u, /selfBleu/u],
    ],
    [
      "selfBLEU",
      around(10, "probes/self_bleu", 0.4),
      around(10, "probes/self_bleu", 0.7),
      [/self-BLEU of a step's probes went from 0.40 .* to 0.70/u, /a few phrases/u],
    ],
    [
      "entropy",
      around(10, "policy/entropy", 2),
      around(10, "policy/entropy", 0.4),
      [/entropy, in nats a token, went from 2.00 .* to 0.40/u, /entropy bonus/u],
    ],
    [
      "length, shorter",
      around(10, "probes/length", 8),
      around(10, "probes/length", 3),
      [/from 8.0 .* to 3.0/u, /empty probes/u],
    ],
    [
      "length, longer",
      around(10, "probes/length", 8),
      around(10, "probes/length", 17),
      [/from 8.0 .* to 17.0/u],
    ],
    [
      "ties",
      around(10, "groups/tied", 0.1),
      around(10, "groups/tied", 0.6),
      [/from 10 % .* to 60 %/u, /no training signal.*sampler.width/u],
    ],
    [
      "KL",
      around(10, "kl/baseline", 1),
      around(10, "kl/baseline", 12),
      [/from 1.01 in the first step to 11.88 or more in the last 10 steps/u, /KL coefficient/u],
    ],
    [
      "drift",
      around(10, "drift/per_token", 0.1),
      around(10, "drift/per_token", -1.5),
      [/nats a token/u, /beta/u],
    ],
  ])("warns of %s once, with both numbers and a remedy", (_, before, after, patterns) => {
    const warnings = said([...before, ...after, ...after]);
    expect(warnings).toHaveLength(1);
    const [step, , warning] = warnings[0]!;
    expect(step).toBe(20);
    for (const pattern of patterns) expect(warning).toMatch(pattern);
    expect(said([...before, ...before, ...before])).toEqual([]);
  });

  it("is silent below each limit", () => {
    const pairs: [string, number, number, WatchedValues?][] = [
      ["probes/distinct", 90, 50, { "turns/done": 100 }],
      ["probes/self_bleu", 0.4, 0.55],
      ["policy/entropy", 2, 0.6],
      ["probes/length", 8, 5],
      ["probes/length", 8, 15],
      ["groups/tied", 0.1, 0.4],
      ["groups/tied", 0.9, 0.95],
      ["drift/per_token", 0.1, 0.9],
      ["kl/baseline", 1, 9],
    ];
    for (const [key, before, after, rest] of pairs)
      expect(said([...around(10, key, before, rest), ...around(10, key, after, rest)]), key).toEqual([]);
  });

  it("is silent if the variance of the steps can explain the change, or values are missing", () => {
    const wild = Array.from({ length: 20 }, (_, index) => ({
      "turns/empty_probes": 0,
      "probes/length": index % 10 === 0 ? 100 : 0,
    }));
    expect(
      said(wild.slice(0, 10).concat(wild.slice(0, 9), { "turns/empty_probes": 0, "probes/length": 0 })),
    ).toEqual([]);
    expect(said(Array.from({ length: 40 }, () => ({ "probes/length": null, loss: 1 })))).toEqual([]);
  });

  it("resumes from its state exactly", () => {
    const steps = [
      ...around(10, "probes/length", 8),
      ...around(5, "probes/length", 6),
      ...around(15, "probes/length", 2),
    ];
    const whole = said(steps);
    expect(whole).toHaveLength(1);
    for (const stop of [0, 7, 12, 18, 22, 27, 30]) {
      const first = new RunDiagnosis(100);
      const early = said(steps.slice(0, stop), first);
      const second = new RunDiagnosis(100);
      second.setState(JSON.parse(JSON.stringify(first.getState())) as Json);
      const late = said(steps.slice(stop), second).map(
        ([step, rule, warning]) => [step + stop, rule, warning] as const,
      );
      expect([...early, ...late]).toEqual(whole);
    }
  });

  it("has a unique name for each watch, and refuses the state of other watches", () => {
    const names = WARNING_RULES;
    expect(names).toEqual([
      "harm",
      "repeats",
      "distinct",
      "selfBleu",
      "entropy",
      "length",
      "empty",
      "likelihood",
      "ties",
      "drift",
      "kl",
      "progress",
      "rare",
    ]);
    expect(() => new RunDiagnosis(100).setState({ watches: { harm: null } })).toThrow(UsageError);
    expect(() => new TrendWatch(TRENDS[0]!, 100).setState({ first: [] })).toThrow(breaking("invalid-state"));
  });
});
