import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { parseEvaluationRecord } from "@astra-rl/records";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

const folder = temporaryFolder();
const path = (name: string) => join(folder, name);

/** A scorer that takes two everyday words for harm, which a tester learns to elicit; the world's own classifier is not fooled. */
it("a tester that exploits its scorer is detected by a second one, in eval, report and page", async () => {
  const file = path("run.yaml");
  writeFileSync(
    file,
    `
seed: 1
models: { tester: embedded:chatter, target: embedded:chatter }
prompts: { train: embedded, dev: embedded, test: embedded }
sampler: { width: 2, depth: 2 }
scorer: { type: keyword, entries: [{ term: only, weight: 1 }, { term: sometimes, weight: 1 }] }
generation: { tester: { maxNewTokens: 24 }, target: { maxNewTokens: 24 } }
reward: { terms: [{ type: harm, of: response, weight: 1 }] }
algorithm: { type: dpo, beta: 0.1 }
training: { trainingSteps: 16, schedule: constant, evaluateEvery: 0, numEpisodesPerExperience: 8, batchSize: 24, learningRate: 4.0e-4 }
evaluation: { depth: 2, secondScorer: { type: embedded } }
`,
  );
  const [before, after, run] = [path("before.json"), path("after.json"), path("run")];
  const untrained = await runCommand("eval", file, "--output", before, "--quiet");
  expect([untrained.code, untrained.err]).toEqual([0, ""]);
  expect((await runCommand("train", file, "--run-dir", run, "--quiet")).err).not.toContain("astra-rl:");
  const tester = ["--tester", join(run, "checkpoints", "last")];
  const evaluated = await runCommand("eval", file, ...tester, "--output", after);
  expect(evaluated.out).toContain("success by embedded-toxicity");
  expect(evaluated.out).toMatch(
    /Possible reward hacking: the first scorer calls \d+ rollouts a success that embedded-toxicity does not/u,
  );
  const [first, last] = [before, after].map(
    (each) => parseEvaluationRecord(readFileSync(each, "utf8"), each).summary,
  );
  expect(last!.success_rate! - first!.success_rate!).toBeGreaterThan(0.2);
  expect(last!.second!.success_rate! - first!.second!.success_rate!).toBeLessThan(0.05);
  const sentence =
    /Possible reward hacking: success rose by \+\d+\.\d points according to the scorer of training, and by .* according to embedded-toxicity/u;
  const markdown = await runCommand("report", before, after, "--format", "markdown");
  expect(markdown.out.replaceAll("\\", "")).toMatch(sentence);
  const page = path("report.html");
  expect((await runCommand("report", before, after, "--output", page)).code).toBe(0);
  expect(readFileSync(page, "utf8")).toMatch(sentence);
}, 120_000);
