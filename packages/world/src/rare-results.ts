/**
 * Results of the policy gradients with default options if harm is ten times rarer than in the embedded worlds, and
 * whether probes stay likely. Writes that section of docs/algorithm-results.md:
 *
 *   npx tsx packages/world/src/rare-results.ts [--runs runs/rare-results] [--seeds 1,2,…,10] [--algorithms ppo,a2c] [--finished]
 *
 * The testers are trained first (see `makeRareTester`). Finished runs are not repeated; with --finished nothing else is
 * trained, and the tables contain only finished runs. Needs the built packages (npm run setup).
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { cpus } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { parseEvaluationRecord, type EvaluationSummary } from "astra-rl";
import { astra, percent, ROOT } from "./finished-run.js";
import { writeRarePart } from "./results-document.js";
import { makeRareTester, RARE_WORLDS, type RareWorld } from "./training/rare-tester.js";

/** Goal of every run of PPO: factor over its start. */
const LEAST_TIMES = 5;
/** Nats per token by which probes may become less likely under the target. */
const MOST_NATS = 1;

const CONFIGURATIONS: Readonly<Record<RareWorld, string>> = {
  desk: "packages/assembly/world/desk.yaml",
  chatter: "packages/assembly/world/demo-rloo.yaml",
};

/** Overrides of the file: shallower trees, larger steps and a lower weight of likelihood. */
const OVERRIDES: Readonly<Record<RareWorld, readonly string[]>> = {
  desk: [],
  chatter: [
    "sampler.depth=3",
    "reward.terms[2].weight=-0.03",
    "training.numEpisodesPerExperience=8",
    "training.batchSize=28",
    "training.learningRate=1e-4",
  ],
};

interface Choice {
  readonly name: string;
  readonly what: string;
  readonly algorithm: string;
  /** Matching credit: values already include later rewards. */
  readonly credit: "reward" | "back-up";
  readonly steps: Readonly<Record<RareWorld, number>>;
  /** Number of seeds. Default: all */
  readonly seeds?: number;
}

const STEPS = { desk: 30, chatter: 40 };
/** Longer for both: after 40 steps some seeds of PPO and RLOO had not improved yet. */
const MORE_STEPS = { desk: 30, chatter: 65 };

const CHOICES: readonly Choice[] = [
  {
    name: "ppo",
    what: "PPO",
    algorithm: "{type: ppo, klLossCoefficient: 0.05, targetKL: 0.02}",
    credit: "reward",
    steps: MORE_STEPS,
  },
  {
    name: "a2c",
    what: "A2C",
    algorithm: "{type: a2c, klLossCoefficient: 0.05}",
    credit: "reward",
    steps: STEPS,
  },
  {
    name: "rloo",
    what: "RLOO",
    algorithm: "{type: rloo, klLossCoefficient: 0.05}",
    credit: "back-up",
    steps: MORE_STEPS,
  },
  {
    name: "reinforce",
    what: "REINFORCE",
    algorithm: "{type: reinforce, normalizer: none, klLossCoefficient: 0.05}",
    credit: "back-up",
    steps: STEPS,
    seeds: 3,
  },
  {
    name: "grpo",
    what: "GRPO",
    algorithm: "{type: grpo, klLossCoefficient: 0.05}",
    credit: "back-up",
    steps: STEPS,
    seeds: 3,
  },
  {
    name: "ppo-before",
    what: "PPO, old defaults",
    algorithm:
      "{type: ppo, epochs: 4, klCoefficient: 0.05, gaeLambda: 0.95, normalizeAdvantages: true, targetKL: 0.02}",
    credit: "reward",
    // With four passes over an experience, it makes as many updates in fewer steps.
    steps: { desk: 24, chatter: 30 },
    seeds: 3,
  },
  {
    name: "a2c-before",
    what: "A2C, old defaults",
    algorithm: "{type: a2c, klCoefficient: 0, entropyCoefficient: 0.01}",
    credit: "reward",
    steps: STEPS,
    seeds: 3,
  },
  {
    name: "rloo-before",
    what: "RLOO, old defaults",
    algorithm: "{type: rloo, klCoefficient: 0, normalizer: none}",
    credit: "back-up",
    steps: STEPS,
    seeds: 3,
  },
];

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "runs/rare-results" },
    seeds: { type: "string", default: "1,2,3,4,5,6,7,8,9,10" },
    algorithms: { type: "string", default: CHOICES.map(({ name }) => name).join(",") },
    finished: { type: "boolean", default: false },
  },
});
const seeds = values.seeds.split(",");
const chosen = new Set(values.algorithms.split(","));
const runs = resolve(values.runs);
mkdirSync(runs, { recursive: true });

function evaluated(world: RareWorld, tester: string, seed: string, file: string): EvaluationSummary {
  if (!existsSync(file)) {
    const settings = ["--set", `seed=${seed}`, "--output", file];
    astra(["eval", "--quiet", join(ROOT, CONFIGURATIONS[world]), "--tester", tester, ...settings]);
  }
  return parseEvaluationRecord(readFileSync(file, "utf8"), file).summary;
}

/** Folder of a run; next to it, when finished, its evaluation as `.json`. */
const folderOf = (world: RareWorld, seed: string, { name }: Choice) => join(runs, `${world}-${name}-${seed}`);

function trained(world: RareWorld, tester: string, seed: string, choice: Choice): EvaluationSummary {
  const folder = folderOf(world, seed, choice);
  const file = `${folder}.json`;
  if (!existsSync(file)) {
    const settings = [
      ...OVERRIDES[world],
      `seed=${seed}`,
      `models.tester=${tester}`,
      `algorithm=${choice.algorithm}`,
      `credit.type=${choice.credit}`,
      `training.trainingSteps=${choice.steps[world]}`,
      "training.evaluateEvery=0",
      "training.checkpointEvery=0",
    ].flatMap((setting) => ["--set", setting]);
    // Remains of an interrupted run.
    rmSync(folder, { recursive: true, force: true });
    const seconds = astra([
      "train",
      "--quiet",
      join(ROOT, CONFIGURATIONS[world]),
      "--run-dir",
      folder,
      ...settings,
    ]);
    process.stdout.write(`${folder}: ${seconds.toFixed(0)} s\n`);
  }
  return evaluated(world, join(folder, "checkpoints/last"), seed, file);
}

interface Run {
  readonly seed: string;
  readonly before: EvaluationSummary;
  readonly after: EvaluationSummary;
}

const success = ({ success_rate: rate }: EvaluationSummary) => rate ?? 0;
const harmless = ({ harmless_probe_success_rate: rate }: EvaluationSummary) => rate ?? 0;
const nll = ({ mean_probe_nll: mean }: EvaluationSummary) => mean ?? NaN;
const distinct = ({ n_distinct_probes: count }: EvaluationSummary) => count ?? NaN;
const mean = (numbers: readonly number[]) =>
  numbers.reduce((total, number) => total + number, 0) / numbers.length;
/** Two decimals with a sign; what rounds to zero is +0.00. */
const signed = (number: number) =>
  `${number > -0.005 ? "+" : ""}${number.toFixed(2).replace("-0.00", "0.00")}`;
const least = (numbers: readonly number[]) => Math.min(...numbers);
const most = (numbers: readonly number[]) => Math.max(...numbers);

const summaries: string[] = [];
const starts: string[] = [];
for (const world of RARE_WORLDS) {
  const tester = join(runs, `tester-${world}`);
  if (!existsSync(join(tester, "config.json"))) {
    await makeRareTester(world, tester, (line) => process.stdout.write(`${world}: ${line}\n`));
  }
  const before = new Map(
    seeds.map((seed) => [
      seed,
      evaluated(world, tester, seed, join(runs, `${world}-untrained-${seed}.json`)),
    ]),
  );
  // With one seed's few prompts none may succeed: a run is also compared with the start of all seeds.
  const start = mean([...before.values()].map(success));
  const n = [...before.values()].reduce<number>((total, summary) => total + summary.n_scored, 0);
  starts.push(`${percent(start)} in the world of \`embedded:${world}\` (${n} rollouts)`);
  for (const choice of CHOICES.filter(({ name }) => chosen.has(name))) {
    const all = seeds
      .slice(0, choice.seeds)
      .filter((seed) => !values.finished || existsSync(`${folderOf(world, seed, choice)}.json`))
      .map((seed): Run => ({
        seed,
        before: before.get(seed)!,
        after: trained(world, tester, seed, choice),
      }));
    if (all.length === 0) continue;
    const low = all.filter(
      (run) => success(run.after) < LEAST_TIMES * Math.max(start, success(run.before)),
    ).length;
    const rises = all.map((run) => nll(run.after) - nll(run.before));
    const ends = all.map((run) => success(run.after));
    const summary = [
      world,
      choice.what,
      choice.steps[world],
      all.length,
      `${percent(mean(ends))} (${percent(least(ends))} to ${percent(most(ends))})`,
      percent(mean(all.map((run) => harmless(run.after)))),
      low === 0 ? "none" : `**${low}**`,
      `${nll(all[0]!.before).toFixed(2)} → ${mean(all.map((run) => nll(run.after))).toFixed(2)}`,
      signed(most(rises)),
      rises.filter((rise) => rise > MOST_NATS).length || "none",
      `${Math.round(mean(all.map((run) => distinct(run.before))))} → ${Math.round(mean(all.map((run) => distinct(run.after))))} of ${all[0]!.after.n_probes}`,
    ];
    summaries.push(`| ${summary.join(" | ")} |`);
  }
}

const notRun = CHOICES.filter(
  ({ name, what }) => !name.endsWith("-before") && !summaries.some((row) => row.includes(`| ${what} |`)),
);
const date = new Date().toISOString().slice(0, 10);
writeRarePart(
  [
    `The policy gradients with a KL weight of 0.05 (the default when they were run; REINFORCE with \`normalizer: none\`), otherwise with their default options, and the settings of \`desk.yaml\` and \`demo-rloo.yaml\` (there with ${OVERRIDES.chatter.map((setting) => `\`${setting}\``).join(", ")}), from a tester that hardly ever succeeds ([how it is made](../packages/assembly/world/README.md#rarer-harm)), against the shipped target.`,
    "",
    `Untrained success: ${starts.join(" and ")}. A run is below five times its start if it succeeds less often than five times its own untrained rate, or that of all seeds.`,
    "",
    "PPO's defaults were chosen on seeds 11 to 15 of the chatter world and the weight of the KL on seeds 1 to 5 with another estimate; RLOO's on seeds 11 to 13; nothing on the desk. PPO's 65 steps in the chatter world were chosen with seeds 1 to 10 in view: after 40, seed 10 was at 2.3 % and the others had learned. With the defaults before, two of ten seeds stayed below five times their start ([0174](decisions/0174-defaults-of-policy-gradients-where-harm-is-rare.md)).",
    "",
    ...(notRun.length === 0 ? [] : [`Not run: ${notRun.map(({ what }) => what).join(", ")}.`, ""]),
    "| world | algorithm | steps | runs | success after, mean (range) | harmless probes only | below five times the start | mean probe NLL | largest rise | rises over 1 nat | distinct probes |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
    ...summaries,
    "",
    `Made on ${date} on ${cpus().length} cores (${cpus()[0]?.model.trim() ?? "unknown"}) by \`npx tsx packages/world/src/rare-results.ts\`.`,
  ].join("\n"),
);
