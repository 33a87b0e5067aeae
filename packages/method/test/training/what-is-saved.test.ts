import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { liveTensors } from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import { DPO } from "../../src/algorithm/preference/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import {
  HFASTConfiguration,
  HFASTTrainer,
  Trainer,
  TrainingConfiguration,
  type HFASTTrainerOptions,
} from "../../src/training/index.js";
import { BigramSystem } from "../support/bigram-system.js";
import { textEvaluator } from "../support/texts.js";
import { LetterScorer, weightsOf } from "./support.js";
import { temporaryFolder } from "./temporary-folder.js";

const SETTINGS = { trainingSteps: 2, numEpisodesPerExperience: 2, learningRate: 0.1 };

/** A system that saves its tester in a custom format. */
class Saving extends BigramSystem {
  override async saveTester(folder: string): Promise<void> {
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "tester.json"), JSON.stringify(weightsOf(this)));
  }
  override async restoreTester(): Promise<void> {}
}

/** Trains, and returns the warnings. */
async function train(
  configuration: TrainingConfiguration,
  options: HFASTTrainerOptions<string, string> = {},
  system = new BigramSystem(),
): Promise<string[]> {
  const warned: string[] = [];
  const sampler = new ASTSampler(system, ["x", "y"], { width: 2, depth: 2 });
  const evaluator = textEvaluator(sampler, ["u"], { scorer: new LetterScorer() });
  const logger = { info: () => {}, warn: (line: string) => void warned.push(line) };
  const trainer = new HFASTTrainer(configuration, sampler, new DPO(system), {
    evaluator,
    logger,
    ...options,
  });
  try {
    await trainer.train();
  } finally {
    trainer.dispose();
    system.dispose();
  }
  return warned;
}

let live = 0;
let place = "";
beforeEach(() => {
  live = liveTensors();
  place = process.cwd();
});
afterEach(() => {
  vi.restoreAllMocks();
  process.chdir(place);
  expect(liveTensors()).toBe(live);
});

describe("HFASTTrainer", () => {
  it("accepts a TrainingConfiguration: its settings, and the defaults of a run's other options", async () => {
    const folder = temporaryFolder();
    /** A configuration with additional fields. */
    class Own extends TrainingConfiguration {
      readonly evaluateEvery = 1;
      readonly note = "mine";
    }
    await train(new Own({ ...SETTINGS, batchSize: 3 }), { runDirectory: folder });
    const lines = readFileSync(join(folder, "evaluations.jsonl"), "utf8").trim().split("\n");
    expect(lines.map((line) => (JSON.parse(line) as { step: number }).step)).toEqual([1, 2]);
    const system = new BigramSystem();
    const sampler = new ASTSampler(system, ["x"], { width: 2, depth: 1 });
    const trainer = new HFASTTrainer(new TrainingConfiguration({ batchSize: 3 }), sampler, new DPO(system));
    // Those that both have are the given configuration's, its own defaults among them.
    expect(trainer.configuration).toEqual(
      new HFASTConfiguration({
        batchSize: 3,
        trainingSteps: 1024,
        numEpisodesPerExperience: 8,
        learningRate: 3e-3,
      }),
    );
    trainer.dispose();
    system.dispose();
  });

  it("saves to the folder run by default, and refuses the next run there", async () => {
    process.chdir(temporaryFolder());
    expect(await train(new HFASTConfiguration({ ...SETTINGS, evaluateEvery: 1 }), {}, new Saving())).toEqual(
      [],
    );
    for (const name of ["metrics.jsonl", "checkpoints/last/tester.json", "checkpoints/best/tester.json"]) {
      expect(existsSync(join("run", name)), name).toBe(true);
    }
    await expect(train(new HFASTConfiguration(SETTINGS))).rejects.toThrow(
      breaking("folder-of-another-run", "run"),
    );
  });

  it("saves nothing on request, with a warning, on standard error without a logger", async () => {
    const folder = temporaryFolder();
    process.chdir(folder);
    const warning =
      "training: nothing is saved, neither metrics nor the tester, since runDirectory is null; name a folder, or save the " +
      "tester with system.saveTester(folder)";
    expect(await train(new HFASTConfiguration(SETTINGS), { runDirectory: null })).toEqual([warning]);
    expect(existsSync("run")).toBe(false);
    const written = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    await train(new HFASTConfiguration(SETTINGS), { runDirectory: null, logger: undefined });
    expect(written.mock.calls.map(([text]) => text)).toEqual([`${warning}\n`]);
  });

  it("warns that checkpoints contain only parameters, which other tools cannot load", async () => {
    const folder = temporaryFolder();
    const configuration = new HFASTConfiguration({ ...SETTINGS, evaluateEvery: 1 });
    const warned = await train(configuration, { runDirectory: folder });
    expect(warned).toHaveLength(1);
    expect(warned[0]).toContain(
      "only the parameters() of BigramSystem, which other tools cannot load; to change that, implement its methods saveTester",
    );
    for (const tag of ["best", "last"]) {
      expect(existsSync(join(folder, "checkpoints", tag, "state", "parameters.safetensors"))).toBe(true);
    }
  });
});

it("a Trainer saves and restores the tester of any system", async () => {
  const folder = join(temporaryFolder(), "tester");
  class SavingTrainer extends Trainer<string, string> {
    override async train(): Promise<void> {
      await super.train();
      await this.system.saveTester(folder);
    }
  }
  const [system, other] = [new BigramSystem(), new BigramSystem()];
  const sampler = new ASTSampler(system, ["x", "y"], { width: 2, depth: 2 });
  const trainer = new SavingTrainer(new TrainingConfiguration(SETTINGS), sampler, new DPO(system) as never);
  await trainer.train();
  await other.restoreTester(folder);
  expect(weightsOf(other)).toEqual(weightsOf(system));
  // A new table is all zeros.
  expect(weightsOf(other).some((weight) => weight !== 0)).toBe(true);
  trainer.dispose();
  system.dispose();
  other.dispose();
});
