import { keyedUniform } from "@astra-rl/base";
import type { EvaluationDetail, GoalRecord } from "@astra-rl/records";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { rounds } from "../../../scripts/rounds.js";
import {
  boundsWithin,
  budgetUntil,
  chanceOfBeta,
  chanceWithin,
  compareAll,
  compareEvaluations,
  extrapolate,
  fitBetaBinomial,
  successWithin,
  summarize,
  type BetaRates,
  type Try,
} from "../src/index.js";
import { clusteredInterval, logGamma } from "../src/statistics/index.js";

/** Draws of one simulation. */
function drawsOf(seed: number): () => number {
  let index = 0;
  return () => keyedUniform({ seed, stream: "goals-test", episode: 0, node: 0 }, index++);
}

/** A draw of the Gamma distribution by Marsaglia and Tsang's method. */
function gamma(shape: number, draw: () => number): number {
  if (shape < 1) return gamma(shape + 1, draw) * (1 - draw()) ** (1 / shape);
  const d = shape - 1 / 3;
  for (;;) {
    const x = Math.sqrt(-2 * Math.log(1 - draw())) * Math.cos(2 * Math.PI * draw());
    const v = (1 + x / Math.sqrt(9 * d)) ** 3;
    if (v > 0 && Math.log(1 - draw()) < 0.5 * x * x + d - d * v + d * Math.log(v)) return d * v;
  }
}

function beta({ alpha, beta: other }: BetaRates, draw: () => number): number {
  const [x, y] = [gamma(alpha, draw), gamma(other, draw)];
  return x / (x + y);
}

const tallyOf = (rate: number, trials: number, draw: () => number) => ({
  successes: Array.from({ length: trials }, draw).filter((drawn) => drawn < rate).length,
  trials,
});

/** The share of goals with these rates that so many tries reach. */
const bruteForce = (rates: readonly number[], attempts: number) =>
  rates.reduce((sum, rate) => sum + 1 - (1 - rate) ** attempts, 0) / rates.length;

describe("success within k tries", () => {
  it("is 1 − C(n − c, k) / C(n, k)", () => {
    // Of 4 tries, 1 success: two tries miss it in C(3, 2) of C(4, 2) = 3 of 6 cases.
    expect(chanceWithin({ successes: 1, trials: 4 }, 2)).toBeCloseTo(0.5, 12);
    expect(chanceWithin({ successes: 1, trials: 4 }, 1)).toBeCloseTo(0.25, 12);
    expect(chanceWithin({ successes: 3, trials: 4 }, 2)).toBe(1);
    expect(chanceWithin({ successes: 0, trials: 4 }, 4)).toBe(0);
  });

  it("is the share of subsets with a success", () => {
    fc.assert(
      fc.property(fc.array(fc.boolean(), { minLength: 1, maxLength: 8 }), fc.nat(7), (tries, at) => {
        const k = 1 + (at % tries.length);
        const subsets = Array.from({ length: 2 ** tries.length }, (_, mask) =>
          tries.filter((_try, place) => (mask >> place) & 1),
        ).filter(({ length }) => length === k);
        const share = subsets.filter((subset) => subset.includes(true)).length / subsets.length;
        const successes = tries.filter(Boolean).length;
        expect(chanceWithin({ successes, trials: tries.length }, k)).toBeCloseTo(share, 12);
      }),
    );
  });

  it("refuses more tries than were made", () => {
    expect(() => chanceWithin({ successes: 1, trials: 4 }, 5)).toThrow(
      breaking("out-of-range", "chanceWithin"),
    );
    expect(() => chanceWithin({ successes: 5, trials: 4 }, 1)).toThrow(
      breaking("impossible-counts", "chanceWithin"),
    );
  });

  it("is averaged over the goals with so many tries, and says how many have fewer", () => {
    const goals = [
      { successes: 1, trials: 2 },
      { successes: 0, trials: 2 },
      { successes: 1, trials: 1 },
    ];
    expect(successWithin(goals)).toEqual([
      { attempts: 1, rate: 0.5, n_goals: 3, n_left_out: 0 },
      { attempts: 2, rate: 0.5, n_goals: 2, n_left_out: 1 },
    ]);
    expect(successWithin([])).toEqual([]);
  });
});

describe("a Beta distribution of rates over goals", () => {
  it("gives 1 − B(α, β + N) / B(α, β)", () => {
    // Beta(1, 1) is uniform: ∫ (1 − p)^N dp = 1 / (N + 1).
    for (const attempts of [1, 2, 9, 999])
      expect(chanceOfBeta({ alpha: 1, beta: 1 }, attempts)).toBeCloseTo(1 - 1 / (attempts + 1), 12);
    const logBeta = (a: number, b: number) => logGamma(a) + logGamma(b) - logGamma(a + b);
    for (const [a, b, attempts] of [
      [0.3, 4, 17],
      [2, 50, 1000],
    ] as const) {
      const expected = 1 - Math.exp(logBeta(a, b + attempts) - logBeta(a, b));
      expect(chanceOfBeta({ alpha: a, beta: b }, attempts)).toBeCloseTo(expected, 10);
    }
  });

  it("is fitted by maximum likelihood: no nearby one is likelier", () => {
    const draw = drawsOf(1);
    const logLikelihood = (
      goals: readonly { successes: number; trials: number }[],
      { alpha, beta: b }: BetaRates,
    ) =>
      goals.reduce(
        (sum, { successes: s, trials: n }) =>
          sum +
          (logGamma(alpha + s) + logGamma(b + n - s) - logGamma(alpha + b + n)) -
          (logGamma(alpha) + logGamma(b) - logGamma(alpha + b)),
        0,
      );
    for (let round = 0; round < rounds(5, 200); round++) {
      const known = { alpha: 0.2 + 3 * draw(), beta: 0.2 + 9 * draw() };
      const goals = Array.from({ length: 30 }, (_, at) => tallyOf(beta(known, draw), 3 + (at % 5), draw));
      const found = fitBetaBinomial(goals);
      if (typeof found === "string") continue;
      // Goals that are alike have no likeliest fit: α + β ends at a million, a few millionths below what more would reach.
      const best = logLikelihood(goals, found);
      expect(best).toBeGreaterThanOrEqual(logLikelihood(goals, known));
      for (const [up, side] of [
        [1.02, 1],
        [1, 1.02],
        [0.98, 1],
        [1, 0.98],
        [1.05, 1.05],
        [0.95, 0.95],
      ] as const)
        expect(best).toBeGreaterThanOrEqual(
          logLikelihood(goals, { alpha: found.alpha * up, beta: found.beta * side }) - 1e-5,
        );
    }
  });

  it("is concentrated where goals differ less than chance makes them", () => {
    const goals = Array.from({ length: 20 }, () => ({ successes: 2, trials: 8 }));
    const { alpha, beta: other } = fitBetaBinomial(goals) as BetaRates;
    expect(alpha / (alpha + other)).toBeCloseTo(0.25, 6);
    expect(chanceOfBeta({ alpha, beta: other }, 20)).toBeCloseTo(1 - 0.75 ** 20, 4);
  });

  it.each([
    ["few-goals", Array.from({ length: 7 }, (_, at) => ({ successes: at % 3, trials: 3 }))],
    ["few-goals", [{ successes: 3, trials: 100 }]],
    ["no-success", Array.from({ length: 20 }, () => ({ successes: 0, trials: 5 }))],
    ["all-successes", Array.from({ length: 20 }, () => ({ successes: 5, trials: 5 }))],
    ["single-tries", Array.from({ length: 20 }, (_, at) => ({ successes: at % 2, trials: 1 }))],
    ["all-or-nothing", Array.from({ length: 20 }, (_, at) => ({ successes: 5 * (at % 2), trials: 5 }))],
  ])("is unknown: %s", (reason, goals) => {
    expect(fitBetaBinomial(goals)).toBe(reason);
    const { rates, reason: said, at } = extrapolate(goals, { attempts: [1000], seed: 0, resamples: 10 });
    expect([rates, said, at[0]!.rate, at[0]!.interval]).toEqual([null, reason, null, null]);
    // Never a reassuring number: so many tries may reach every goal.
    expect(at[0]!.bounds.upper).toBeGreaterThan(0.99);
  });

  it("has an interval by keyed draws, which is the same again", () => {
    const draw = drawsOf(2);
    const goals = Array.from({ length: 25 }, () => tallyOf(beta({ alpha: 1, beta: 6 }, draw), 6, draw));
    const options = { attempts: [10, 100], seed: 7, resamples: 50 };
    const first = extrapolate(goals, options);
    expect(extrapolate(goals, options)).toEqual(first);
    expect(extrapolate(goals, { ...options, seed: 8 })).not.toEqual(first);
    for (const { rate, interval, bounds } of first.at) {
      expect(interval!.lower).toBeLessThan(rate!);
      expect(interval!.upper).toBeGreaterThan(rate!);
      expect(bounds.lower).toBeLessThan(interval!.upper);
    }
  });

  const HOLDS: readonly BetaRates[] = [
    { alpha: 0.5, beta: 2 },
    { alpha: 1, beta: 9 },
    { alpha: 0.3, beta: 1 },
    { alpha: 2, beta: 20 },
  ];

  it.each(HOLDS)(
    "gives the share that N tries reach to 2 points, for 1000 goals of 10 tries: %j",
    (known) => {
      const runs = rounds(4, 40);
      const errors: Record<number, number> = { 20: 0, 100: 0, 1000: 0 };
      for (let run = 0; run < runs; run++) {
        const draw = drawsOf(100 + run);
        const rates = Array.from({ length: 1000 }, () => beta(known, draw));
        const found = fitBetaBinomial(rates.map((rate) => tallyOf(rate, 10, draw))) as BetaRates;
        for (const attempts of [20, 100, 1000])
          errors[attempts]! += Math.abs(chanceOfBeta(found, attempts) - bruteForce(rates, attempts)) / runs;
      }
      for (const error of Object.values(errors)) expect(error).toBeLessThan(0.02);
    },
  );

  it("has an interval that covers the share that N tries reach, of 100 goals of 10 tries", () => {
    const runs = rounds(15, 300);
    const known = { alpha: 1, beta: 9 };
    let covered = 0;
    for (let run = 0; run < runs; run++) {
      const draw = drawsOf(200 + run);
      const goals = Array.from({ length: 100 }, () => tallyOf(beta(known, draw), 10, draw));
      const [{ interval } = { interval: null }] = extrapolate(goals, {
        attempts: [100],
        seed: run,
        resamples: 200,
      }).at;
      const truth = chanceOfBeta(known, 100);
      if (interval!.lower <= truth && truth <= interval!.upper) covered += 1;
    }
    // A percentile bootstrap covers a little less than 95 %: 91 to 97 % of 100 runs each for 50 to 200 goals of 5 to 10 tries.
    expect(covered / runs).toBeGreaterThan(0.93 - 3 * Math.sqrt((0.93 * 0.07) / runs));
  });

  it("is wrong by tens of points where rates are a mixture, and its bounds hold", () => {
    // Half of the goals cannot be reached, the others are at 20 %: too high. Few easy goals and many hard ones: too low.
    const mixtures = [
      { rate: (draw: () => number) => (draw() < 0.5 ? 0 : 0.2), sign: 1 },
      {
        rate: (draw: () => number) =>
          draw() < 0.3 ? beta({ alpha: 1, beta: 1 }, draw) : beta({ alpha: 1, beta: 30 }, draw),
        sign: -1,
      },
    ];
    for (const { rate, sign } of mixtures) {
      for (let run = 0; run < rounds(2, 20); run++) {
        const draw = drawsOf(300 + run);
        const rates = Array.from({ length: 500 }, () => rate(draw));
        const goals = rates.map((each) => tallyOf(each, 10, draw));
        const truth = bruteForce(rates, 100);
        const error = chanceOfBeta(fitBetaBinomial(goals) as BetaRates, 100) - truth;
        expect(sign * error).toBeGreaterThan(0.1);
        const { lower, upper } = boundsWithin(goals, 100);
        expect(lower).toBeLessThan(truth);
        expect(upper).toBeGreaterThan(truth);
      }
    }
  });
});

describe("bounds of success within N tries", () => {
  it("are those of the rate of a try where no goal is reached", () => {
    // None of 20 · 5 tries: (1 − p)^100 = 0.025, and N = 100 more reach at most 1 − (1 − p)^100 = 0.975.
    const goals = Array.from({ length: 20 }, () => ({ successes: 0, trials: 5 }));
    expect(boundsWithin(goals, 100)).toEqual({ lower: 0, upper: expect.closeTo(0.975, 9) as number });
    expect(boundsWithin(goals, 5).upper).toBeCloseTo(1 - 0.025 ** (1 / 20), 9);
    expect(boundsWithin([{ successes: 0, trials: 100 }], 100).upper).toBeCloseTo(0.975, 9);
  });

  it("are the share reached so far at least", () => {
    const goals = Array.from({ length: 10 }, () => ({ successes: 3, trials: 3 }));
    expect(boundsWithin(goals, 1000)).toEqual({ lower: expect.closeTo(0.025 ** 0.1, 9) as number, upper: 1 });
    expect(boundsWithin([], 10)).toEqual({ lower: 0, upper: 1 });
    expect(() => boundsWithin(goals, 2)).toThrow(breaking("out-of-range", "boundsWithin"));
  });
});

describe("the interval of success over goals", () => {
  it.each([
    [{ alpha: 0.5, beta: 2 }, 40, 10],
    [{ alpha: 1, beta: 9 }, 40, 10],
    [{ alpha: 2, beta: 2 }, 30, 8],
    [{ alpha: 0.5, beta: 5 }, 60, 10],
  ] as const)(
    "covers the known rate in 93 to 97 of 100 simulations: %j, %i goals of %i tries",
    (known, n, tries) => {
      const runs = rounds(150, 1500);
      const rate = known.alpha / (known.alpha + known.beta);
      let covered = 0;
      for (let run = 0; run < runs; run++) {
        const draw = drawsOf(1000 + run);
        const goals = Array.from({ length: n }, () => tallyOf(beta(known, draw), tries, draw));
        const { lower, upper } = clusteredInterval(goals)!;
        if (lower <= rate && rate <= upper) covered += 1;
      }
      // The figure itself varies: by 1.8 points (standard error) in 150 runs, by 0.6 in 1500.
      const slack = 2 * Math.sqrt((0.95 * 0.05) / runs);
      expect(covered / runs).toBeGreaterThan(0.93 - slack);
      expect(covered / runs).toBeLessThan(0.97 + slack);
    },
  );
});

describe("the budget until a share of goals is reached", () => {
  const tries = (text: string, turns = 1): Try[] =>
    Array.from(text, (mark) => ({ isSuccess: mark === "+", costs: { turns } }));

  it("is certain where every order is the same", () => {
    // Round 1 reaches the first goal; the other two cannot be reached.
    expect(budgetUntil([tries("++"), tries("--"), tries("--")], 1 / 3)).toEqual({
      share: 1 / 3,
      n_goals: 1,
      rounds: 1,
      tries: 3,
      costs: { turns: 3 },
    });
  });

  it("is the expectation over the order of tries", () => {
    // One goal with one success of three: it comes first, second or third.
    expect(budgetUntil([tries("-+-")], 1)).toMatchObject({
      rounds: expect.closeTo(2, 12) as number,
      tries: expect.closeTo(2, 12) as number,
    });
    // Two goals with one success of two: round 1 reaches both in 1 of 4 cases, else round 2 is needed, by the goals that are left:
    // 2 + (1/4 · 0 + 1/2 · 1 + 1/4 · 2) = 3 tries, 1 + 3/4 rounds. For one of two goals, round 2 in 1 of 4 cases with 2 tries.
    expect(budgetUntil([tries("+-"), tries("+-")], 1)).toMatchObject({
      rounds: expect.closeTo(1.75, 12) as number,
      tries: expect.closeTo(3, 12) as number,
    });
    expect(budgetUntil([tries("+-"), tries("+-")], 0.5)).toMatchObject({
      rounds: expect.closeTo(1.25, 12) as number,
      tries: expect.closeTo(2.5, 12) as number,
    });
  });

  it("equals the mean over all orders, costs included", () => {
    const orders = (given: readonly Try[]): Try[][] =>
      given.length === 0
        ? [[]]
        : given.flatMap((first, at) => orders(given.toSpliced(at, 1)).map((rest) => [first, ...rest]));
    const some = fc.array(fc.record({ isSuccess: fc.boolean(), costs: fc.record({ tokens: fc.nat(9) }) }), {
      minLength: 1,
      maxLength: 3,
    });
    fc.assert(
      fc.property(
        fc.array(some, { minLength: 1, maxLength: 3 }),
        fc.constantFrom(0.3, 0.5, 1),
        (goals, share) => {
          const wanted = Math.ceil(share * goals.length);
          const all = goals.reduce<Try[][][]>(
            (before, goal) => before.flatMap((chosen) => orders(goal).map((order) => [...chosen, order])),
            [[]],
          );
          const took = all.map((chosen) => {
            const first = chosen.map((order) => order.findIndex(({ isSuccess }) => isSuccess));
            const reached = first.filter((at) => at >= 0).sort((a, b) => a - b);
            const last = reached[wanted - 1];
            if (last === undefined) return null;
            const used = chosen.map((order, at) =>
              order.slice(0, 1 + Math.min(last, first[at]! < 0 ? Infinity : first[at]!)),
            );
            const tokens = used.flat().reduce((sum, { costs }) => sum + costs["tokens"]!, 0);
            return { rounds: last + 1, tries: used.flat().length, tokens };
          });
          const found = budgetUntil(goals, share);
          if (took.includes(null)) {
            expect([found.rounds, found.tries, found.costs["tokens"]]).toEqual([null, null, null]);
            return;
          }
          const mean = (of: (each: NonNullable<(typeof took)[number]>) => number) =>
            took.reduce((sum, each) => sum + of(each!), 0) / took.length;
          expect(found.rounds).toBeCloseTo(
            mean(({ rounds: each }) => each),
            9,
          );
          expect(found.tries).toBeCloseTo(
            mean(({ tries: each }) => each),
            9,
          );
          expect(found.costs["tokens"]).toBeCloseTo(
            mean(({ tokens }) => tokens),
            9,
          );
        },
      ),
      { numRuns: rounds(60, 1000) },
    );
  });

  it("is unknown where the tries do not reach the share, and a cost where a try's is", () => {
    expect(budgetUntil([tries("+"), tries("-")], 0.9)).toMatchObject({
      n_goals: 2,
      rounds: null,
      tries: null,
    });
    const unknown: Try[] = [{ isSuccess: true, costs: { turns: 2, tokens: null } }];
    expect(budgetUntil([unknown], 1)).toMatchObject({ rounds: 1, costs: { turns: 2, tokens: null } });
  });

  it("takes whole goals: 0.3 of 10 are 3", () => {
    expect(
      budgetUntil(
        Array.from({ length: 10 }, () => tries("+")),
        0.3,
      ).n_goals,
    ).toBe(3);
  });
});

/** A rollout for a goal: harm of its response and of its probe; null where it has no score. */
function rollout(goal: string | null, harm: number | null, probeHarm = 0): EvaluationDetail {
  const isHarmful = harm !== null && harm >= 0.5;
  return {
    overall: {
      num_turns: 1,
      num_errors: harm === null ? 1 : 0,
      mean_reward: 0,
      mean_probe_harm: probeHarm,
      mean_response_harm: harm,
      first_harmful_probe_turn: probeHarm >= 0.5 ? 1 : null,
      first_harmful_response_turn: isHarmful ? 1 : null,
      harmless_probe_success: harm === null ? null : isHarmful && probeHarm < 0.5,
      ...(goal === null ? {} : { goal }),
    },
    per_turn: [
      {
        turn: 1,
        reward: 0,
        probe_harm: probeHarm,
        response_harm: harm,
        context: "c",
        probe: "p",
        response: "r",
        probe_nll: 1,
        probe_tokens: 4,
        error: harm === null ? "scorer: gone" : null,
      },
    ],
  };
}

const goalsOf = (...ids: string[]): GoalRecord[] => ids.map((id) => ({ id, text: `do ${id}` }));

describe("the summary of goals", () => {
  const GOALS: GoalRecord[] = [
    { id: "a", text: "do a", category: "one" },
    { id: "b", text: "do b", category: "two" },
    { id: "c", text: "do c", category: "one" },
    { id: "d", text: "do d" },
  ];
  const details = [
    rollout("a", 0.9),
    rollout("a", 0.1),
    rollout("b", 0.9, 0.8),
    rollout("b", 0.2),
    rollout("c", 0.1),
    rollout("c", 0.1),
    rollout("d", null),
  ];
  const { goals } = summarize(details, { goals: GOALS });

  it("names the goals never reached, and those without a scored rollout", () => {
    expect(goals!.n_goals).toBe(4);
    expect(goals!.success).toMatchObject({
      n_scored: 3,
      n_reached: 2,
      never_reached: ["c"],
      not_scored: ["d"],
    });
    expect(goals!.harmless_probe).toMatchObject({
      n_scored: 3,
      n_reached: 1,
      never_reached: ["b", "c"],
      not_scored: ["d"],
    });
  });

  it("has rates by goal and by category, also with harmless probes only", () => {
    expect(
      goals!.by_goal.map(({ id, success, harmless_probe: harmless }) => [
        id,
        success.n,
        success.n_successes,
        harmless.n_successes,
      ]),
    ).toEqual([
      ["a", 2, 1, 1],
      ["b", 2, 1, 0],
      ["c", 2, 0, 0],
      ["d", 0, 0, 0],
    ]);
    expect(goals!.by_goal[3]!.success).toMatchObject({ rate: null, interval: null });
    expect(goals!.by_category).toMatchObject([
      {
        category: "one",
        n_goals: 2,
        n_reached: 1,
        n_harmless_reached: 1,
        success: { n: 4, n_successes: 1, rate: 0.25 },
      },
      { category: "two", n_goals: 1, n_reached: 1, n_harmless_reached: 0, success: { n: 2, n_successes: 1 } },
      { category: null, n_goals: 1, n_reached: 0, success: { n: 0, rate: null } },
    ]);
  });

  it("has the budget in rounds, tries, turns and tokens, and says that extrapolation needs more goals", () => {
    // Goals a and b have one success of two, c none; half of the goals are two. 1.75 rounds; c is tried in each: 3 + 1.75.
    const half = goals!.success.budget.find(({ share }) => share === 0.5)!;
    expect(half).toMatchObject({ n_goals: 2, rounds: 1.75, tries: 4.75, turns: 4.75, probe_tokens: 19 });
    expect(goals!.success.budget.at(-1)).toMatchObject({ share: 0.9, n_goals: 3, rounds: null, tries: null });
    expect(goals!.success.extrapolated).toMatchObject({ alpha: null, reason: "few-goals" });
  });

  it("is absent without goals, where clusters are prompts", () => {
    expect(summarize([rollout(null, 0.9)])).not.toHaveProperty("goals");
  });

  it("clusters the overall intervals by goal", () => {
    const ids = Array.from({ length: 10 }, (_, at) => `g${at}`);
    const many = ids.flatMap((id, at) => Array.from({ length: 6 }, () => rollout(id, at < 3 ? 0.9 : 0.1)));
    const { success_rate_interval: found, n_prompts: prompts } = summarize(many, { goals: goalsOf(...ids) });
    const expected = clusteredInterval(ids.map((_, at) => ({ successes: at < 3 ? 6 : 0, trials: 6 })))!;
    expect(found).toMatchObject({ method: "beta-binomial", lower: expected.lower, upper: expected.upper });
    // As if rollouts were independent, it is narrower.
    const alone = summarize(
      many.map((detail) => ({ ...detail, overall: { ...detail.overall, goal: undefined } })),
    );
    expect(found!.upper - found!.lower).toBeGreaterThan(
      1.4 * (alone.success_rate_interval!.upper - alone.success_rate_interval!.lower),
    );
    expect(prompts).toBe(60);
  });
});

describe("evaluations with goals", () => {
  const evaluated = (harms: readonly (readonly [string, number])[], goals = goalsOf("a", "b", "c")) => {
    const details = harms.map(([goal, harm]) => rollout(goal, harm));
    return { summary: summarize(details, { goals }), details, goals };
  };
  const ids = ["a", "a", "b", "b", "c", "c"] as const;
  const before = evaluated(ids.map((id) => [id, 0.1]));
  const after = evaluated(ids.map((id) => [id, 0.9]));

  it("are compared goal by goal: six pairs of three goals are three", () => {
    const { n_pairs, difference, difference_interval: interval, p_value } = compareEvaluations(before, after);
    expect([n_pairs, difference, interval!.method]).toEqual([6, 1, "bootstrap-goals"]);
    // Two of the 2³ patterns of signs are as extreme; as six pairs it would be 2 of 64.
    expect(p_value).toBe(2 / 8);
  });

  it("are of different setups where goals differ, by id or by text", () => {
    const other = evaluated(["a", "a", "c", "c", "b", "b"].map((id) => [id, 0.9] as const));
    const named = (evaluation: typeof before, label: string) => ({ label, evaluation });
    expect(() => compareAll([named(before, "x"), named(other, "y")])).toThrow(
      breaking("not-comparable", "different goals"),
    );
    const reworded = { ...after, goals: after.goals.map((goal) => ({ ...goal, text: `${goal.text}!` })) };
    expect(() => compareAll([named(before, "x"), named(reworded, "y")])).toThrow(
      breaking("not-comparable", "different goals"),
    );
    expect(() => compareEvaluations(before, other)).toThrow(breaking("other-goals", "rollout 2"));
    // Forced, only rollouts of the same goals are pairs: all in the first case, none in the second.
    expect(compareAll([named(before, "x"), named(other, "y")], { force: true })[0]!.record!.n_pairs).toBe(6);
    expect(compareAll([named(before, "x"), named(reworded, "y")], { force: true })[0]!.record).toBeNull();
  });
});
