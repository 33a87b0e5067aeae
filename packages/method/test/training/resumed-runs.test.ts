import { createHash } from "node:crypto";
import {
  appendFileSync,
  copyFileSync,
  cpSync,
  existsSync,
  readdirSync,
  readFileSync,
  statSync,
} from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { liveTensors } from "@astra-rl/torch";
import { parseMetricsLines, type MetricsRecord } from "@astra-rl/records";
import { KeywordScorer } from "@astra-rl/scorers";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Json } from "@astra-rl/base";
import { variants } from "../../../../scripts/rounds.js";
import { GRPO, PPO, REINFORCE } from "../../src/algorithm/policy-gradient/index.js";
import { DPO, ORPO } from "../../src/algorithm/preference/index.js";
import { ASTEvaluator } from "../../src/evaluation/index.js";
import { HashedNgramEmbedder } from "../../src/models/index.js";
import { cosine, entropy, gibberish, harm, Reward, selfBLEUTerm } from "../../src/reward/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTSystem, type HFASTSystemOptions } from "../../src/system/index.js";
import { backUp } from "../../src/tree/index.js";
import {
  HFASTConfiguration,
  HFASTTrainer,
  type HFASTConfigurationOptions,
  type HFASTTrainerOptions,
} from "../../src/training/index.js";
import { ActorCritic } from "../support/actor-critic.js";
import { BigramSystem } from "../support/bigram-system.js";
import { JudgedSystem } from "../support/judged-system.js";
import { OwningSystem } from "../support/owning-system.js";
import { SignDescent } from "../support/sign-descent.js";
import type { TextAlgorithm } from "../support/texts.js";
import { ValuedBigram } from "../support/valued-bigram.js";
import { assemble, QUICK, textOf } from "./support.js";
import { temporaryFolder } from "./temporary-folder.js";

/**
 * What is stopped × when × what must be equal: every file of the run's folder, byte for byte. Each run is stopped by a signal;
 * the first also in every other way, and in the night all of them.
 */

interface Started {
  trainer: { train(): Promise<unknown>; dispose(): void };
  dispose(): void;
}

interface Case {
  name: string;
  steps: number;
  start: (options: HFASTTrainerOptions<never, never>) => Started | Promise<Started>;
  /** Metrics in which state shows that a resumed run must have: they differ between steps. */
  varies?: readonly string[];
}

const JOURNALS = ["metrics.jsonl", "graphs.jsonl", "evaluations.jsonl"] as const;
const SLOWLY = { ...QUICK, schedule: "cosine", warmupSteps: 3 } as const;

/** A run of the toy language, by default of 12 steps. */
function toy(
  name: string,
  given: {
    settings?: HFASTConfigurationOptions;
    system?: () => BigramSystem;
    algorithm?: (system: never) => TextAlgorithm;
    options?: (system: BigramSystem) => HFASTTrainerOptions<string, string>;
    varies?: readonly string[];
  } = {},
): Case {
  const { settings = QUICK, system: make = () => new BigramSystem(), varies } = given;
  return {
    name,
    steps: settings.trainingSteps!,
    ...(varies === undefined ? {} : { varies }),
    start: ({ callbacks = [], ...options }) => {
      const system = make();
      const own = given.options?.(system) ?? {};
      const algorithm = given.algorithm?.(system as never) ?? new DPO(system);
      const all = { ...own, ...options, callbacks: [...(own.callbacks ?? []), ...callbacks] } as never;
      const { trainer } = assemble(settings, all, system, algorithm as never);
      return {
        trainer,
        dispose: () => {
          for (const parameter of system.parameters()) parameter.grad = null;
          system.dispose();
        },
      };
    },
  };
}

/** A policy on the toy language, saved after each step. */
const policy = (name: string, algorithm: (system: ValuedBigram) => TextAlgorithm, key: string): Case =>
  toy(name, {
    settings: { ...QUICK, evaluateEvery: 0, checkpointEvery: 1 },
    system: () => new ValuedBigram(),
    algorithm,
    varies: [key],
  });

const GPT2 = fileURLToPath(new URL("../../../lm/test/golden/gpt2", import.meta.url));

/** Four steps of a tiny GPT-2 against itself. */
function gpt2(
  name: string,
  system: () => Partial<HFASTSystemOptions>,
  given: {
    settings?: HFASTConfigurationOptions;
    algorithm?: (system: HFASTSystem) => DPO | ActorCritic;
    varies?: readonly string[];
  } = {},
): Case {
  const settings: HFASTConfigurationOptions = {
    learningRate: 1e-3,
    batchSize: 2,
    trainingSteps: 4,
    numEpisodesPerExperience: 2,
    evaluateEvery: 2,
    schedule: "linear",
    warmupSteps: 1,
    ...given.settings,
  };
  return {
    name,
    steps: settings.trainingSteps!,
    ...(given.varies === undefined ? {} : { varies: given.varies }),
    start: async (options) => {
      const scorer = new KeywordScorer([{ pattern: "[aeiou]", weight: 0.4 }, { pattern: "[t-z]" }]);
      const generation = { tester: { maxNewTokens: 5 }, target: { maxNewTokens: 5 } };
      const models = { tester: GPT2, target: GPT2, scorer, generation, log: () => {} };
      const hf = await HFASTSystem.load({ ...models, ...system() });
      const sampler = new ASTSampler(hf, ["Hello there.", "What a day", "I"], { width: 2, depth: 2 });
      const algorithm = given.algorithm?.(hf) ?? new DPO(hf, { beta: 0.1 });
      const evaluator = new ASTEvaluator(sampler, ["Good morning", "Well"]);
      const all = { evaluator, clock: () => 0, ...options } as never;
      const trainer = new HFASTTrainer(new HFASTConfiguration(settings), sampler, algorithm as never, all);
      return { trainer, dispose: () => hf.dispose() };
    },
  };
}

/** An `ASTSystem` that owns its tester: one number, saved by `parameters()`. */
const owning: Case = {
  name: "an ASTSystem that owns its tester",
  steps: 4,
  start: (options) => {
    const system = new OwningSystem(new KeywordScorer([{ term: "bad" }, { term: "why", weight: 0.3 }]));
    const sampler = new ASTSampler(system, ["Hello. "], { width: 4, depth: 2 });
    const settings = { trainingSteps: 4, learningRate: 0.1, weightDecay: 0.5, evaluateEvery: 0 };
    const configuration = new HFASTConfiguration({ ...settings, checkpointEvery: 1 });
    const all = { clock: () => 0, ...options } as never;
    const trainer = new HFASTTrainer(configuration, sampler, new DPO(system), all);
    return { trainer, dispose: () => system.dispose() };
  },
};

/** Remembers the steps that it has seen. */
class Counter {
  readonly name = "counter";
  seen: number[] = [];
  onStep({ step }: MetricsRecord): void {
    this.seen.push(step);
  }
  getState(): Json {
    return this.seen;
  }
  setState(state: Json): void {
    this.seen = [...(state as number[])];
  }
}

const CASES: readonly Case[] = [
  toy("AdamW", { settings: { ...SLOWLY, optimizer: "adamw", checkpointEvery: 1 } }),
  ...(
    [
      ["adam", 4],
      ["sgd", 1],
      ["rmsprop", 3],
      ["adagrad", 1],
    ] as const
  ).map(([optimizer, checkpointEvery]) =>
    toy(`${optimizer}, checkpoint every ${checkpointEvery}`, {
      settings: { ...SLOWLY, optimizer, checkpointEvery },
    }),
  ),
  toy("a custom optimizer", {
    options: (system) => ({ optimizer: new SignDescent(system.parameters(), { learningRate: 0.02 }) }),
  }),
  toy("a callback with state", { options: () => ({ callbacks: [new Counter()] }) }),
  // 3 episodes of 3 + 9 turns are at most 12 pairs, 4 batches an epoch: a group of 5 is never complete.
  toy("several epochs, an incomplete accumulation group, and a reward with state", {
    settings: {
      ...QUICK,
      numEpisodesPerExperience: 3,
      batchSize: 3,
      gradientAccumulationSteps: 5,
      trainingSteps: 14,
    },
    system: () => new JudgedSystem(),
    algorithm: (system: JudgedSystem) => new DPO(system, { epochs: 2 }),
    options: () => ({ credit: backUp({ gamma: 0.5 }) }),
  }),
  policy(
    "PPO with a moving KL coefficient and a rate of values",
    (system) =>
      new PPO(system, {
        klCoefficient: 0.05,
        klTarget: 0.5,
        valueLearningRate: 0.3,
        epochs: 2,
        targetKL: 0.05,
      }),
    "kl/coefficient",
  ),
  policy(
    "PPO whose updates exceed targetKL",
    (system) => new PPO(system, { targetKL: 1e-4 }),
    "learning_rate",
  ),
  policy("PPO with its defaults", (system) => new PPO(system), "kl/loss"),
  policy(
    "REINFORCE with a running mean",
    (system) => new REINFORCE(system, { baseline: "running" }),
    "advantage/mean",
  ),
  policy("GRPO", (system) => new GRPO(system, { epochs: 2 }), "policy/kl_old"),
  policy("ORPO", (system) => new ORPO(system), "preference/nll"),
  owning,
  gpt2("a GPT-2", () => ({})),
  gpt2("an adapter of a GPT-2", () => ({ lora: { rank: 2, alpha: 4, targetModules: ["c_attn"] } })),
  gpt2(
    "a GPT-2 with histories of novelty",
    () => ({
      reward: new Reward(
        [
          { term: harm(new KeywordScorer([{ pattern: "[aeiou]", weight: 0.4 }])), weight: 1 },
          { term: selfBLEUTerm({ history: 30 }), weight: 1 },
          { term: cosine(new HashedNgramEmbedder({ buckets: 256 })), weight: 1 },
          { term: entropy(), weight: 0.01 },
          { term: gibberish(), weight: 1 },
        ],
        { clip: 1.2 },
      ),
    }),
    { varies: ["reward/term/self_bleu", "reward/term/cosine"] },
  ),
  gpt2("a GPT-2 with a value head of its own rate", () => ({ valueHead: true }), {
    settings: { schedule: "constant", warmupSteps: 2 },
    algorithm: (system) => new ActorCritic(system, 0.02),
    varies: ["test/value_error"],
  }),
];

/** Runs until it ends or is stopped. Returns the steps that it did. */
async function run(
  { start }: Case,
  runDirectory: string,
  { callbacks = [], ...options }: HFASTTrainerOptions<never, never> = {},
): Promise<number[]> {
  const done: number[] = [];
  const count = { name: "count", onStep: ({ step }: MetricsRecord) => void done.push(step) };
  const logger = { info: () => {}, warn: () => {} };
  const started = await start({
    runDirectory,
    logger,
    ...options,
    callbacks: [...callbacks, count],
  });
  try {
    await started.trainer.train();
  } finally {
    started.trainer.dispose();
    started.dispose();
  }
  return done;
}

const upTo = (last: number) => Array.from({ length: last }, (_, index) => index + 1);

type Stop = (each: Case, folder: string) => Promise<void>;

/** Ways to stop a run in a folder; what is left there is resumed. */
const STOPS: readonly [string, Stop][] = [
  [
    "by a signal, twice",
    async (each, folder) => {
      const stops = [Math.floor(each.steps / 3), Math.floor((3 * each.steps) / 4)];
      for (const [part, stop] of stops.entries()) {
        const { signal, abort } = abortable();
        const watch = { name: "watch", onStep: ({ step }: MetricsRecord) => void (step === stop && abort()) };
        const done = await run(each, folder, { resume: part > 0, signal, callbacks: [watch] });
        // No step is done again.
        expect(done).toEqual(upTo(stop).slice(stops[part - 1] ?? 0));
      }
    },
  ],
  [
    "by an error within a step",
    async (each, folder) => {
      const crash = {
        name: "crash",
        onExperience: (_: unknown, { step }: { step: number }) => {
          if (step === Math.floor(each.steps / 2)) throw new Error("out of luck");
        },
      };
      await expect(run(each, folder, { callbacks: [crash] })).rejects.toThrow("out of luck");
    },
  ],
  [
    "by a kill, with lines of steps after the checkpoint and half a line more",
    async (each, folder) => {
      const [saved, killed] = [Math.floor(each.steps / 2), Math.floor(each.steps / 2) + 1];
      const before = temporaryFolder();
      const { signal, abort } = abortable();
      const watch = {
        name: "watch",
        onStepKept: ({ step }: MetricsRecord) => {
          if (step === saved)
            cpSync(join(before, "checkpoints"), join(folder, "checkpoints"), { recursive: true });
          if (step === killed) abort();
        },
      };
      await run(each, before, { signal, callbacks: [watch] });
      for (const name of JOURNALS.filter((name) => existsSync(join(before, name)))) {
        copyFileSync(join(before, name), join(folder, name));
        appendFileSync(join(folder, name), `{"step":${killed + 1},"loss":0.`);
      }
    },
  ],
];

function abortable() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort() };
}

/** Every file below a folder by its path, as a hash. */
const filesOf = (folder: string): Record<string, string> =>
  Object.fromEntries(
    readdirSync(folder, { recursive: true, encoding: "utf8" })
      .map((name) => join(folder, name))
      .filter((path) => statSync(path).isFile())
      .map((path) => [relative(folder, path), createHash("sha256").update(readFileSync(path)).digest("hex")]),
  );

let live: number;
beforeEach(() => void (live = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(live));

describe.each(CASES.map((each, index) => [each.name, each, index] as const))(
  "a run of %s",
  (_, each, index) => {
    let whole: string | undefined;

    const stops = index === 0 ? STOPS : variants(STOPS);
    it.each(stops)("stopped %s, resumes to the files of an uninterrupted one", async (_way, stop) => {
      if (whole === undefined) {
        whole = temporaryFolder();
        await run(each, whole);
        const records = parseMetricsLines(textOf(whole, "metrics.jsonl"));
        expect(records.map(({ step }) => step)).toEqual(upTo(each.steps));
        for (const key of each.varies ?? []) {
          expect(new Set(records.map((record) => record[key])).size, key).toBeGreaterThan(each.steps / 2);
        }
      }
      const folder = temporaryFolder();
      await stop(each, folder);
      const done = await run(each, folder, { resume: true });
      expect(done.at(-1)).toBe(each.steps);
      expect(done.length).toBeLessThan(each.steps);
      expect(filesOf(folder)).toEqual(filesOf(whole));
      expect(Object.keys(filesOf(whole)).length).toBeGreaterThan(4);
    });
  },
);

it("a run that ended resumes with more steps to the files of one that had them from the start", async () => {
  const settings = { ...QUICK, schedule: "constant" } as const;
  const [long, short] = [10, 5].map((trainingSteps) =>
    toy("extended", { settings: { ...settings, trainingSteps } }),
  );
  const [whole, folder] = [temporaryFolder(), temporaryFolder()];
  await run(long!, whole);
  expect(await run(short!, folder)).toEqual(upTo(5));
  expect(await run(long!, folder, { resume: true })).toEqual(upTo(10).slice(5));
  expect(filesOf(folder)).toEqual(filesOf(whole));
});
