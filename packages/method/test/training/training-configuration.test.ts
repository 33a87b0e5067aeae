import { describe, expect, it } from "vitest";
import { UsageError } from "@astra-rl/base";
import { HFASTConfiguration, TrainingConfiguration } from "../../src/training/index.js";

describe("TrainingConfiguration", () => {
  it("has the Python toolbox's defaults", () => {
    expect(new TrainingConfiguration()).toMatchObject({
      learningRate: 3e-3,
      batchSize: 16,
      optimizer: "adamw",
      gradientAccumulationSteps: 1,
      trainingSteps: 1024,
      numEpisodesPerExperience: 8,
    });
    expect(new HFASTConfiguration()).toMatchObject({
      learningRate: 1e-5,
      batchSize: 4,
      optimizer: "adamw",
      gradientAccumulationSteps: 1,
      trainingSteps: 1000,
      numEpisodesPerExperience: 2,
    });
  });

  it.each([
    [{ learningRate: NaN }, "training: learningRate must be a finite number greater than 0, got NaN"],
    [{ learningRate: 0 }, "learningRate must be a finite number greater than 0, got 0"],
    [{ learningRate: "1e-5" as unknown as number }, 'got "1e-5"'],
    [{ batchSize: 0 }, "batchSize must be a whole number of at least 1, got 0"],
    [{ batchSize: 1.5 }, "batchSize must be a whole number of at least 1, got 1.5"],
    [{ gradientAccumulationSteps: 0 }, "gradientAccumulationSteps must be a whole number of at least 1"],
    [{ trainingSteps: -1 }, "trainingSteps must be a whole number of at least 0, got -1"],
    [{ numEpisodesPerExperience: 0 }, "numEpisodesPerExperience must be a whole number of at least 1"],
    [{ optimizer: "lion" as "adam" }, /optimizer must be .*adamw.*, got "lion"/],
    [{ schedule: "step" as "linear" }, /schedule must be .*constant.*linear.*cosine.*, got "step"/],
    [{ warmupSteps: -1 }, "warmupSteps must be a whole number of at least 0"],
    [{ clipGradNorm: -1 }, "clipGradNorm must be a finite number of at least 0, got -1"],
    [{ nonFinite: { stopAfter: 0 } }, "nonFinite.stopAfter must be a whole number of at least 1, got 0"],
    [{ seed: 0.5 }, "seed must be a whole number of at least 0, got 0.5"],
    [
      { optimizer: "sgd" as const, betas: [0.9, 0.99] as const },
      "betas are options of adam and adamw, not of sgd",
    ],
    [{ evaluateEvery: -1 }, "evaluateEvery must be a whole number of at least 0"],
    [{ checkpointEvery: NaN }, "checkpointEvery must be a whole number of at least 0, got NaN"],
  ])("refuses %o", (options, message) => {
    expect(() => new HFASTConfiguration(options)).toThrow(UsageError);
    expect(() => new HFASTConfiguration(options)).toThrow(message);
  });

  it("accepts seed 0", () => {
    expect(new TrainingConfiguration({ seed: 0 }).seed).toBe(0);
  });
});
