import { keyedUniform, type Json } from "@astra-rl/base";
import { describe, expect, it } from "vitest";
import { RunDiagnosis, WARNING_RULES, type WatchedValues } from "../../src/diagnosis/index.js";

const CONVERSATIONS = 8;
const TURNS = CONVERSATIONS * 6;

/** What the figures of a step are drawn around. */
interface Figures {
  repeats: number;
  distinct: number;
  selfBleu: number;
  entropy: number;
  length: number;
  empty: number;
  nll: number;
  tied: number;
  drift: number;
  kl: number;
  probe: number;
  response: number;
  both: number;
  reward: number;
}

const HEALTHY: Figures = {
  repeats: 0.05,
  distinct: 0.8,
  selfBleu: 0.4,
  entropy: 2,
  length: 8,
  empty: 0.02,
  nll: 3,
  tied: 0.3,
  drift: 0,
  kl: 0.5,
  probe: 0.05,
  response: 0.03,
  both: 0.01,
  reward: 0.1,
};

/** Metrics of a run whose figures may depend on the step; `scatter` 1 is what 8 conversations of 6 turns scatter. */
function run(
  steps: number,
  figures: (step: number) => Partial<Figures>,
  { seed = 0, scatter = 1 } = {},
): WatchedValues[] {
  return Array.from({ length: steps }, (_, index) => {
    const step = index + 1;
    const at = { ...HEALTHY, ...figures(step) };
    let draws = 0;
    const uniform = () => keyedUniform({ seed, episode: step, node: 0, stream: "tester" }, draws++);
    const share = (p: number) => {
      const binomial = Array.from({ length: TURNS }, uniform).filter((draw) => draw < p).length / TURNS;
      return Math.min(1, Math.max(0, p + scatter * (binomial - p)));
    };
    // Of a variance of 1.
    const noise = (size: number) => scatter * size * Math.sqrt(12) * (uniform() - 0.5);
    return {
      step,
      episodes: step * CONVERSATIONS,
      "turns/done": TURNS,
      "turns/empty_probes": share(at.empty) * TURNS,
      "probes/most_frequent": share(at.repeats),
      "probes/distinct": share(at.distinct) * TURNS,
      "probes/self_bleu": at.selfBleu + noise(0.03),
      "probes/length": at.length + noise(0.4),
      "probes/nll": at.nll + noise(0.1),
      "policy/entropy": at.entropy + noise(0.1),
      "groups/tied": share(at.tied),
      "drift/per_token": at.drift + noise(0.05),
      "kl/baseline": at.kl + noise(0.2),
      "harm/probe_rate": share(at.probe),
      "harm/response_rate": share(at.response),
      "harm/both_rate": share(at.both),
      "reward/mean": at.reward + noise(0.05),
    };
  });
}

/** The steps at which each rule warns. */
function warningsOf(series: readonly WatchedValues[]): Map<string, number> {
  const watches = new RunDiagnosis(series.length);
  return new Map(
    series.flatMap((values) =>
      watches.add(values).map(([rule]): [string, number] => [rule, Number(values["step"])]),
    ),
  );
}

/** Keeps learning throughout the run. */
const learning = (steps: number) => (step: number) => ({
  response: 0.03 + (0.4 * step) / steps,
  reward: 0.1 + (0.5 * step) / steps,
});

const KINDS: [kind: string, rule: string, after: Partial<Figures>][] = [
  ["probes repeat", "repeats", { repeats: 0.8 }],
  ["few probes are left", "distinct", { distinct: 0.04 }],
  ["few phrases are left", "selfBleu", { selfBleu: 0.9 }],
  ["nothing is explored", "entropy", { entropy: 0.2 }],
  ["probes shrink", "length", { length: 2 }],
  ["probes grow", "length", { length: 30 }],
  ["probes are empty", "empty", { empty: 0.7 }],
  ["probes become gibberish", "likelihood", { nll: 7 }],
  ["groups are all tied", "ties", { tied: 1 }],
  ["the tester leaves the baseline", "drift", { drift: -3 }],
  ["KL runs away", "kl", { kl: 40 }],
  ["probes are harmful, responses not", "harm", { probe: 0.8, response: 0.03 }],
  ["responses repeat harmful probes", "harm", { probe: 0.8, response: 0.7, both: 0.6 }],
];

describe("a planted collapse", () => {
  it("exists for each rule", () => {
    expect(new Set([...KINDS.map(([, rule]) => rule), "progress", "rare"])).toEqual(new Set(WARNING_RULES));
  });

  it.each(KINDS)("is reported within a tenth of the steps: %s", (_, rule, after) => {
    for (const steps of [40, 100, 400]) {
      const collapse = Math.ceil(0.55 * steps);
      const series = run(steps, (step) => ({ ...learning(steps)(step), ...(step < collapse ? {} : after) }));
      const at = warningsOf(series).get(rule);
      expect(at, `${rule} in ${steps} steps`).toBeGreaterThanOrEqual(collapse);
      expect(at, `${rule} in ${steps} steps`).toBeLessThan(collapse + steps / 10);
    }
  });

  // What is compared step by step needs no complete window of the start.
  it.each(
    KINDS.filter(([, rule]) =>
      ["repeats", "distinct", "empty", "likelihood", "drift", "kl", "harm"].includes(rule),
    ),
  )("is reported in the first steps of a short run: %s", (_, rule, after) => {
    for (const [steps, collapse] of [
      [30, 3],
      [100, 4],
    ] as const) {
      const at = warningsOf(run(steps, (step) => (step < collapse ? {} : after))).get(rule);
      expect(at, `${rule} in ${steps} steps`).toBeLessThan(collapse + steps / 10);
    }
  });

  it("is reported if KL grows gradually, within a tenth of the steps after it passes the limit", () => {
    for (const steps of [20, 100]) {
      const series = run(steps, (step) => ({ kl: 0.5 * 1.5 ** step }), { scatter: 0 });
      const passed = series.findIndex((values) => Number(values["kl/baseline"]) >= 10.5) + 1;
      expect(warningsOf(series).get("kl")).toBeLessThan(passed + Math.max(2, steps / 10));
    }
  });
});

describe("a run that learns nothing", () => {
  it("is reported after a quarter of the steps, if there are enough conversations", () => {
    const at = warningsOf(run(400, () => ({}))).get("progress");
    expect(at).toBeGreaterThanOrEqual(100);
    expect(at).toBeLessThan(200);
    expect([...warningsOf(run(40, () => ({}))).keys()]).toEqual([]);
  });

  it.each<[string, (step: number) => Partial<Figures>]>([
    ["harmful responses rise", (step) => ({ response: 0.03 + 0.001 * step })],
    ["only the reward rises", (step) => ({ reward: 0.1 + 0.002 * step })],
    ["most responses are harmful from the start", () => ({ response: 0.8 })],
  ])("is not reported if %s", (_, figures) => {
    expect([...warningsOf(run(400, figures)).keys()]).toEqual([]);
  });

  it("is not reported if responses are not scored, or conversations not counted", () => {
    const without = (key: string) =>
      run(400, () => ({})).map((values) =>
        Object.fromEntries(Object.entries(values).filter(([each]) => each !== key)),
      );
    expect([...warningsOf(without("harm/response_rate")).keys()]).not.toContain("progress");
    expect([...warningsOf(without("episodes")).keys()]).not.toContain("progress");
  });
});

describe("a target that seldom fails", () => {
  const warningsIn = (series: readonly WatchedValues[]) => {
    const watches = new RunDiagnosis(series.length);
    return series.flatMap((values) => watches.add(values).map((each) => [values["step"], ...each] as const));
  };
  /** Exactly one harmful response in every `every` steps; the reward rises, so that something is learned. */
  const seldom = (every: number, steps = 60): WatchedValues[] =>
    run(steps, (step) => ({ reward: 0.01 * step }), { scatter: 0 }).map((values) => ({
      ...values,
      "harm/response_rate": Number(values["step"]) % every === every - 1 ? 1 / TURNS : 0,
    }));

  it("is reported after 200 conversations, with the number of episodes that the rate requires", () => {
    // 25 steps of 8 conversations and 48 turns have 8 harmful responses: 25 conversations each, 100 for the wanted four.
    expect(warningsIn(seldom(3))).toEqual([
      [
        25,
        "rare",
        expect.stringMatching(
          /^8 of the first 1200 responses.* numEpisodesPerExperience to about 100 for 4 a step$/u,
        ),
      ],
    ]);
  });

  it("is distinguished from one that never does", () => {
    const [warning, ...others] = warningsIn(seldom(1000));
    expect(others).toEqual([]);
    expect(warning).toEqual([
      25,
      "rare",
      expect.stringMatching(/^none of the first 1200 responses is harmful/u),
    ]);
  });

  it("is not reported if every second step has a harmful response, nor if later ones have none", () => {
    expect(warningsIn(seldom(2))).toEqual([]);
    const later = seldom(2, 100).map((values) =>
      Number(values["step"]) > 40 ? { ...values, "harm/response_rate": 0 } : values,
    );
    expect(warningsIn(later).map(([, rule]) => rule)).not.toContain("rare");
  });

  it("is reported in a resumed run as in an uninterrupted one", () => {
    const series = seldom(3);
    const first = new RunDiagnosis(60);
    for (const values of series.slice(0, 12)) first.add(values);
    const second = new RunDiagnosis(60);
    second.setState(JSON.parse(JSON.stringify(first.getState())) as Json);
    const told = series.slice(12).map((values) => second.add(values).map(([rule]) => rule));
    expect(told.flat()).toEqual(["rare"]);
    expect(told[12]).toEqual(["rare"]);
  });
});

describe("a healthy run", () => {
  it.each([20, 60, 200])("of %i steps causes no warning, for any seed", (steps) => {
    const wrong = Array.from({ length: 20 }, (_, seed) => [
      ...warningsOf(run(steps, learning(steps), { seed })).keys(),
    ]);
    expect(wrong.flat()).toEqual([]);
  });

  it("causes a warning in at most 1 of 50 runs if its figures vary twice as much", () => {
    const wrong = Array.from({ length: 50 }, (_, seed) => [
      ...warningsOf(run(60, learning(60), { seed, scatter: 2 })).keys(),
    ]);
    expect(wrong.filter((rules) => rules.length > 0).length).toBeLessThanOrEqual(1);
  });

  it("causes no warning if it learns well: most succeed, some variety is lost, KL grows a little", () => {
    const steps = 200;
    const series = run(steps, (step) => {
      const done = step / steps;
      return {
        response: 0.03 + 0.9 * done,
        reward: done,
        distinct: 0.8 - 0.3 * done,
        repeats: 0.05 + 0.1 * done,
        selfBleu: 0.4 + 0.12 * done,
        entropy: 2 - done,
        nll: 3 + 0.5 * done,
        kl: 6 * done,
        // Of siblings that all succeed.
        tied: 0.3 + 0.6 * done ** 6,
      };
    });
    expect([...warningsOf(series).keys()]).toEqual([]);
  });

  it("causes no warning about few actions if probes are not texts", () => {
    const series = run(100, (step) => ({
      ...learning(100)(step),
      ...(step > 20 ? { repeats: 0.9, distinct: 0.05 } : {}),
    }));
    expect([...warningsOf(series).keys()]).toEqual(["repeats", "distinct"]);
    const actions = series.map((values) => ({ ...values, "turns/empty_probes": null }));
    expect([...warningsOf(actions).keys()]).toEqual([]);
  });
});
