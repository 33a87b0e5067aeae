import { spawn } from "node:child_process";
import {
  appendFileSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { liveTensors, UsageError } from "@astra-rl/torch";
import { parseMetricsLines } from "../../src/records/index.js";
import type { HFASTConfigurationOptions, HFASTTrainerOptions } from "../../src/training/index.js";
import { DPO } from "../../src/algorithm/index.js";
import { backUp } from "../../src/credit/index.js";
import { BigramSystem } from "../support/bigram-system.js";
import { JudgedSystem } from "../support/judged-system.js";
import { assemble, QUICK, textOf, weightsOf } from "./support.js";
import { temporaryFolder } from "./temporary-folder.js";

/** Trains in the folder and returns the weights; everything else is in the folder. */
async function train(
  folder: string,
  configuration: HFASTConfigurationOptions = QUICK,
  options: HFASTTrainerOptions = {},
): Promise<number[]> {
  const { system, trainer } = assemble(configuration, { runDirectory: folder, ...options });
  try {
    await trainer.train();
    return weightsOf(system);
  } finally {
    trainer.dispose();
    system.dispose();
  }
}

describe("a run folder", () => {
  it("holds a line for each step, and the best and the last checkpoint", async () => {
    const folder = temporaryFolder();
    await train(folder);
    const records = parseMetricsLines(textOf(folder, "metrics.jsonl"));
    expect(records.map((record) => record.step)).toEqual(Array.from({ length: 12 }, (_, i) => i + 1));
    const evaluated = records.filter((record) => "evaluation/reward" in record);
    // Every fifth step and the last.
    expect(evaluated.map((record) => record.step)).toEqual([5, 10, 12]);
    const best = evaluated.reduce((a, b) =>
      (b["evaluation/reward"] as number) > (a["evaluation/reward"] as number) ? b : a,
    );
    expect(JSON.parse(textOf(folder, "checkpoints", "best", "evaluation.json"))).toMatchObject({
      step: best.step,
      summary: { avg_reward: best["evaluation/reward"], n_rollouts: 2 },
    });
    expect(readdirSync(join(folder, "checkpoints")).sort()).toEqual(["best", "last"]);
    expect(readdirSync(join(folder, "checkpoints", "last", "state")).sort()).toEqual([
      "optimizer.safetensors",
      "parameters.safetensors",
      "trainer.json",
    ]);
  });

  it("is the same byte for byte for the same seed, with seed 0 too", async () => {
    const [one, two, other] = [temporaryFolder(), temporaryFolder(), temporaryFolder()];
    const weights = await train(one);
    expect(await train(two)).toEqual(weights);
    expect(textOf(two, "metrics.jsonl")).toBe(textOf(one, "metrics.jsonl"));
    await train(other, { ...QUICK, seed: 1 });
    expect(textOf(other, "metrics.jsonl")).not.toBe(textOf(one, "metrics.jsonl"));
  });

  it("does not depend on whether, or how often, it is evaluated and saved", async () => {
    const weights = await train(temporaryFolder());
    expect(await train(temporaryFolder(), { ...QUICK, evaluateEvery: 0, checkpointEvery: 0 })).toEqual(
      weights,
    );
    expect(await train(temporaryFolder(), { ...QUICK, evaluateEvery: 1, checkpointEvery: 5 })).toEqual(
      weights,
    );
  });

  it("leaves no tensors behind", async () => {
    const before = liveTensors();
    await train(temporaryFolder());
    expect(liveTensors()).toBe(before);
  });
});

describe("a resumed run", () => {
  const whole = async (configuration: HFASTConfigurationOptions = QUICK) => {
    const folder = temporaryFolder();
    const weights = await train(folder, configuration);
    return { weights, metrics: textOf(folder, "metrics.jsonl") };
  };

  it.each([
    ["adamw", 1],
    ["adam", 4],
    ["sgd", 1],
    ["rmsprop", 3],
    ["adagrad", 1],
  ] as const)(
    "gives the weights and metrics of one that was never stopped (%s, checkpoint every %d)",
    async (optimizer, checkpointEvery) => {
      const settings = { ...QUICK, optimizer, checkpointEvery, schedule: "cosine", warmupSteps: 3 } as const;
      const { weights, metrics } = await whole(settings);
      const folder = temporaryFolder();
      // Stopped twice, by a signal, after steps 4 and 9.
      for (const stop of [4, 9]) {
        const controller = new AbortController();
        await train(folder, settings, {
          resume: true,
          signal: controller.signal,
          onStep: ({ step }) => (step === stop ? controller.abort() : undefined),
        });
      }
      expect(await train(folder, settings, { resume: true })).toEqual(weights);
      expect(textOf(folder, "metrics.jsonl")).toBe(metrics);
    },
  );

  it("computes steps after its last checkpoint again, and drops their lines and a torn one", async () => {
    const { weights, metrics } = await whole();
    const folder = temporaryFolder();
    const early = temporaryFolder();
    const controller = new AbortController();
    await train(folder, QUICK, {
      signal: controller.signal,
      onStep: ({ step }) => {
        if (step === 6) cpSync(join(folder, "checkpoints"), join(early, "checkpoints"), { recursive: true });
        if (step === 8) controller.abort();
      },
    });
    // Metrics as they were after step 8 with half a line, checkpoints as they were after step 6.
    copyFileSync(join(folder, "metrics.jsonl"), join(early, "metrics.jsonl"));
    appendFileSync(join(early, "metrics.jsonl"), '{"step":9,"loss":0.');
    expect(await train(early, QUICK, { resume: true })).toEqual(weights);
    expect(textOf(early, "metrics.jsonl")).toBe(metrics);
  });

  it("starts anew where there is no checkpoint yet", async () => {
    const { weights, metrics } = await whole();
    const folder = temporaryFolder();
    appendFileSync(join(folder, "metrics.jsonl"), '{"step":1,"lo');
    expect(await train(folder, QUICK, { resume: true })).toEqual(weights);
    expect(textOf(folder, "metrics.jsonl")).toBe(metrics);
  });

  it("may go on for longer", async () => {
    const { weights, metrics } = await whole({ ...QUICK, trainingSteps: 10 });
    const folder = temporaryFolder();
    await train(folder, { ...QUICK, trainingSteps: 5 });
    expect(await train(folder, { ...QUICK, trainingSteps: 10 }, { resume: true })).toEqual(weights);
    expect(textOf(folder, "metrics.jsonl")).toBe(metrics);
  });

  it("goes on with epochs, gradients that wait, and what reward and warnings remember", async () => {
    // 3 episodes of 3 + 9 turns are at most 12 pairs, 4 batches an epoch, so that groups of 5 mostly wait for the next step.
    const settings = {
      ...QUICK,
      numEpisodesPerExperience: 3,
      batchSize: 3,
      gradientAccumulationSteps: 5,
      accumulateAcrossExperiences: true,
      trainingSteps: 14,
    };
    const run = async (folder: string, stop: number | null) => {
      const system = new JudgedSystem();
      const controller = new AbortController();
      const { trainer } = assemble(
        settings,
        {
          runDirectory: folder,
          resume: true,
          credit: backUp({ gamma: 0.5 }),
          signal: controller.signal,
          onStep: ({ step }) => (step === stop ? controller.abort() : undefined),
        },
        system,
        new DPO(system, { epochs: 2 }),
      );
      await trainer.train();
      const result = {
        weights: weightsOf(system),
        seen: system.getState(),
        state: trainer.harness.getState(),
      };
      trainer.dispose();
      system.table.grad = null;
      system.dispose();
      return result;
    };
    const before = liveTensors();
    const whole = temporaryFolder();
    const expected = await run(whole, null);
    expect(expected.seen).not.toEqual({});
    const folder = temporaryFolder();
    const waiting: boolean[] = [];
    for (const stop of [3, 4, 5, 11]) {
      await run(folder, stop);
      waiting.push(existsSync(join(folder, "checkpoints", "last", "state", "gradients.safetensors")));
    }
    expect(waiting).toContain(true);
    expect(await run(folder, null)).toEqual(expected);
    expect(textOf(folder, "metrics.jsonl")).toBe(textOf(whole, "metrics.jsonl"));
    const state = (of: string) => textOf(of, "checkpoints", "last", "state", "trainer.json");
    expect(state(folder)).toBe(state(whole));
    expect(liveTensors()).toBe(before);
  });

  it("has nothing to do when it is finished", async () => {
    const folder = temporaryFolder();
    const weights = await train(folder);
    const metrics = textOf(folder, "metrics.jsonl");
    expect(await train(folder, QUICK, { resume: true })).toEqual(weights);
    expect(textOf(folder, "metrics.jsonl")).toBe(metrics);
  });

  it("refuses other settings, and names the first that differs", async () => {
    const folder = temporaryFolder();
    await train(folder, { ...QUICK, trainingSteps: 2 });
    const other = train(folder, { ...QUICK, learningRate: 0.2 }, { resume: true });
    await expect(other).rejects.toThrow("learningRate was 0.1 and is now 0.2; set it back");
    await expect(train(folder, { ...QUICK, weightDecay: 0.5 }, { resume: true })).rejects.toThrow(
      "weightDecay was undefined and is now 0.5",
    );
  });

  it("refuses a damaged state with the file's name", async () => {
    const folder = temporaryFolder();
    await train(folder, { ...QUICK, trainingSteps: 2 });
    const path = join(folder, "checkpoints", "last", "state", "trainer.json");
    writeFileSync(path, "{");
    await expect(train(folder, QUICK, { resume: true })).rejects.toThrow(`${path}: cannot be read as JSON`);
    writeFileSync(path, '{"version":1}');
    await expect(train(folder, QUICK, { resume: true })).rejects.toThrow(`${path}: step: `);
    rmSync(path);
    await expect(train(folder, QUICK, { resume: true })).rejects.toThrow("cannot be resumed, only loaded");
  });
});

describe("a killed run", () => {
  const script = fileURLToPath(new URL("kill-run.ts", import.meta.url));
  const root = fileURLToPath(new URL("../../../../", import.meta.url));

  /** Runs until `untilStep` was printed, then kills; null lets it finish. */
  function start(folder: string, steps: number, untilStep: number | null): Promise<number> {
    return new Promise((resolve, reject) => {
      const child = spawn(process.execPath, ["--import", "tsx", script, folder, String(steps)], {
        cwd: root,
        env: { ...process.env, TSX_TSCONFIG_PATH: join(root, "tsconfig.check.json") },
      });
      let last = 0;
      let errors = "";
      child.stderr.on("data", (data: Buffer) => (errors += String(data)));
      child.stdout.on("data", (data: Buffer) => {
        last = Number(String(data).trim().split("\n").at(-1));
        if (untilStep !== null && last >= untilStep) child.kill("SIGKILL");
      });
      child.on("error", reject);
      child.on("close", (code, signal) => {
        if (code === 0 || signal === "SIGKILL") resolve(last);
        else reject(new Error(errors));
      });
    });
  }

  it("loses at most the step in flight, and ends as if nothing had happened", async () => {
    const steps = 40;
    const folder = temporaryFolder();
    let reached = 0;
    for (const stop of [3, 11, 24]) {
      const printed = await start(folder, steps, stop);
      expect(printed).toBeGreaterThanOrEqual(stop);
      const { step } = JSON.parse(textOf(folder, "checkpoints", "last", "state", "trainer.json")) as {
        step: number;
      };
      // What was printed is on the disk.
      expect(step).toBeGreaterThanOrEqual(printed);
      expect(step).toBeGreaterThan(reached);
      reached = step;
    }
    await start(folder, steps, null);
    const whole = temporaryFolder();
    await train(whole, { ...QUICK, trainingSteps: steps });
    expect(textOf(folder, "metrics.jsonl")).toBe(textOf(whole, "metrics.jsonl"));
    const parameters = (run: string) => textOf(run, "checkpoints", "last", "state", "parameters.safetensors");
    expect(parameters(folder)).toBe(parameters(whole));
  }, 300_000);
});

describe("a disk that fails", () => {
  it("ends the run with what to do, and keeps the last checkpoint", async () => {
    const folder = temporaryFolder();
    class Failing extends BigramSystem {
      failing = false;
      async saveTester(path: string): Promise<void> {
        mkdirSync(path);
        if (this.failing) throw Object.assign(new Error("write ENOSPC"), { code: "ENOSPC" });
        writeFileSync(join(path, "weights"), JSON.stringify(weightsOf(this)));
      }
      async restoreTester(): Promise<void> {}
    }
    const system = new Failing();
    const { trainer } = assemble(
      QUICK,
      { runDirectory: folder, onStep: ({ step }) => void (system.failing = step === 3) },
      system,
    );
    const failure = trainer.train();
    await expect(failure).rejects.toThrow(UsageError);
    await expect(failure).rejects.toThrow(
      /checkpoints\/last: cannot be written: the disk is full; free some space/,
    );
    const { step } = JSON.parse(textOf(folder, "checkpoints", "last", "state", "trainer.json")) as {
      step: number;
    };
    expect(step).toBe(3);
    expect(existsSync(join(folder, "checkpoints", ".last.writing"))).toBe(false);
    expect(parseMetricsLines(textOf(folder, "metrics.jsonl")).length).toBe(4);
    trainer.dispose();
    system.dispose();
  });

  it("is noticed before anything is computed", async () => {
    const file = join(temporaryFolder(), "file");
    writeFileSync(file, "");
    let rolled = false;
    const { trainer, system } = assemble(QUICK, {
      runDirectory: join(file, "run"),
      onProgress: () => (rolled = true),
    });
    await expect(trainer.train()).rejects.toThrow("a part of the path is a file, not a folder (ENOTDIR)");
    expect(rolled).toBe(false);
    trainer.dispose();
    system.dispose();
  });
});

describe("settings that do not fit", () => {
  it("are refused at assembly", () => {
    expect(() => assemble({ ...QUICK, evaluationRollouts: 3 })).toThrow(
      "evaluationRollouts must be at most the number of dev prompts, 2, got 3",
    );
    expect(() => assemble(QUICK, { resume: true })).toThrow("resume needs the run directory to go on from");
  });
});
