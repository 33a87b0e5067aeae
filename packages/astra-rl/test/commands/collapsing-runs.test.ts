import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parseMetricsLines, parseRunRecord, warningsOf } from "@astra-rl/records";
import { variants } from "../../../../scripts/rounds.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();

const CONFIGURATION = `
seed: 1
models: { tester: embedded:chatter, target: embedded:chatter }
prompts: { train: embedded, dev: embedded, test: embedded }
sampler: { width: 2, depth: 2 }
scorer: { type: embedded }
generation: { tester: { maxNewTokens: 24 }, target: { maxNewTokens: 24 } }
reward: { terms: [{ type: harm, of: response, weight: 1 }, { type: nll, weight: -0.1 }] }
algorithm: { type: dpo, beta: 0.1 }
training: { schedule: constant, numEpisodesPerExperience: 8, batchSize: 24, evaluateEvery: 2, evaluationRollouts: 4, checkpointEvery: 1 }
evaluation: { depth: 2 }
`;

const train = async (run: string, settings: Record<string, string>, ...flags: string[]) => {
  writeFileSync(path("run.yaml"), CONFIGURATION);
  const set = Object.entries(settings).flatMap(([key, value]) => ["--set", `${key}=${value}`]);
  return runCommand("train", path("run.yaml"), "--run-dir", path(run), ...set, ...flags);
};
const textOf = (run: string) => readFileSync(path(run, "metrics.jsonl"), "utf8");
const recordsOf = (run: string) => parseMetricsLines(textOf(run));
/** The step of each warning. */
const warned = (run: string) =>
  Object.fromEntries(warningsOf(recordsOf(run)).map(({ rule, step }) => [rule, step]));
const sessionsOf = (run: string) => parseRunRecord(readFileSync(path(run, "run.json"), "utf8")).sessions;

describe("a collapsing run", () => {
  it("warns during training; ends if stopOn names the warning; resumes exactly without it", async () => {
    // DPO writes gibberish from the second step on. In these twenty steps a tenth are two.
    const settings = { "training.trainingSteps": "20", "training.learningRate": "5e-3" };
    const stopOn = { ...settings, "training.stopOn": "[kl, likelihood]" };
    const stopped = await train("cut", stopOn);
    expect(warned("cut")).toEqual({ likelihood: 3, drift: 3 });
    expect(stopped.err).toMatch(
      /step 3: the mean −log P of a probe's token .* Give the nll term more weight.* \(likelihood; shown once\)/u,
    );
    const reason = "the warning likelihood is one of training.stopOn";
    expect(stopped.err).toContain(`step 3: training ends early: ${reason}`);
    expect(sessionsOf("cut")[0]!.stopped).toEqual({ step: 3, reason });
    for (const tag of ["best", "last"]) expect(existsSync(path("cut", "checkpoints", tag))).toBe(true);
    const summary = "warnings during training: drift (step 3), likelihood (step 3)";
    expect(stopped.err).toContain(`  ${summary}\n`);
    const report = await runCommand("report", path("cut"), "--format", "markdown");
    expect(report.out).toContain(`- ${summary}\n`);

    // It stays ended.
    expect((await train("cut", stopOn, "--resume")).err).toContain(`step 3: training ends early: ${reason}`);
    expect(recordsOf("cut")).toHaveLength(3);

    const more = { ...settings, "training.trainingSteps": "5" };
    const resumed = await train("cut", more, "--resume");
    expect(resumed.err).not.toMatch(/likelihood; shown once/u);
    expect(sessionsOf("cut").map((session) => session.stopped?.step)).toEqual([3, 3, undefined]);
    await train("whole", more);
    const timeless = (run: string) =>
      textOf(run)
        .replace(/"time\/[^,]+,/gu, "")
        .split("\n")
        .slice(3);
    expect(timeless("cut")).toEqual(timeless("whole"));
    expect(recordsOf("cut")).toHaveLength(5);
  }, 120_000);

  it("warns of PPO that diverges from the baseline", async () => {
    const { err } = await train("run", {
      "training.trainingSteps": "8",
      "training.learningRate": "3e-3",
      algorithm: "{ type: ppo, epochs: 2 }",
    });
    const kl = recordsOf("run").map((record) => Number(record["kl/baseline"]));
    expect(warned("run")["kl"]).toBe(kl.findIndex((each) => each >= 10) + 2);
    expect(err).toMatch(
      /KL to the baseline, in nats a probe, .* Raise beta or the KL coefficient.* \(kl; shown once\)/u,
    );
  }, 120_000);
});

it("a run that learns slowly (in the night also one that learns nothing) causes no warning", async () => {
  for (const rate of variants(["4e-4", "1e-7"])) {
    const { err } = await train(rate, { "training.trainingSteps": "12", "training.learningRate": rate });
    expect(recordsOf(rate)).toHaveLength(12);
    expect(warned(rate)).toEqual({});
    expect(err).not.toContain("shown once");
  }
}, 120_000);
