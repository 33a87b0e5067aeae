import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { doubtsOfTraining, parseMetricsLines } from "@astra-rl/records";
import { beforeAll, expect, test } from "vitest";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

const source = (path: string) => JSON.stringify(pathToFileURL(join(import.meta.dirname, path)).href);

/** A cart that is pushed to the left, to the right, or not: states, actions and answers are plain objects, nothing is a text. */
const MODULE = `
import { System } from ${source("../../../method/src/index.ts")};
import { TokenTable } from ${source("../../../method/src/index.ts")};
import { keyedUniform } from "@astra-rl/lm";
import { keep, noGrad, scope, tensor, zeros } from "@astra-rl/torch";

const PUSHES = [-1, 0, 1];

export class Cart extends System {
  table = keep(zeros([3])).requiresGrad_();
  startFrom() { return { at: 0 }; }
  async rolloutPromptWithTester(states, keys) {
    const shares = scope(() => Array.from(noGrad(() => this.table.detach().softmax(-1)).toTypedArray()));
    return states.map((_, row) => {
      let draw = keyedUniform({ ...keys[row], stream: "tester" }, 0);
      let action = 0;
      while (action < 2 && (draw -= shares[action]) >= 0) action += 1;
      return { push: PUSHES[action] };
    });
  }
  async rolloutPromptWithTarget(states) { return states.map(({ at }) => ({ at })); }
  async reward(states, pushes) { return pushes.map(({ push }) => push); }
  async getTesterLogprobs(_, pushes) {
    const rows = pushes.map(({ push }) => push + 1);
    return new TokenTable(this.table.logSoftmax(-1).indexSelect(0, tensor(rows, { dtype: "int64" })).unsqueeze(1), rows.map(() => 1));
  }
  async getBaselineLogprobs(states, pushes) {
    return new TokenTable(zeros([pushes.length, 1]), pushes.map(() => 1));
  }
  async getTargetLogprobs(states, pushes) { return this.getBaselineLogprobs(states, pushes); }
  advance({ at }, { push }) { return { at: at + push }; }
  promptForTarget({ at }, { push }) { return { at: at + push }; }
  parameters() { return [this.table]; }
  async testerUpdated() {}
  dispose() { this.table.dispose(); }
}
`;

const folder = temporaryFolder();
const [file, run] = [join(folder, "run.yaml"), join(folder, "run")];

beforeAll(() => {
  writeFileSync(join(folder, "cart.ts"), MODULE);
  writeFileSync(join(folder, "package.json"), '{"type": "module"}');
  writeFileSync(join(folder, "prompts.txt"), Array.from({ length: 16 }, (_, at) => `start ${at}`).join("\n"));
  writeFileSync(
    file,
    `
system: { type: ./cart.ts#Cart }
prompts: { train: ./prompts.txt, dev: ./prompts.txt, test: ./prompts.txt }
sampler: { width: 4, depth: 2 }
training: { trainingSteps: 2, numEpisodesPerExperience: 2, learningRate: 0.1, evaluateEvery: 1 }
`,
  );
});

test("is trained and evaluated by its reward, without messages about texts", async () => {
  const [best, record] = [join(run, "checkpoints", "best"), join(folder, "evaluation.json")];
  const trained = await runCommand("train", file, "--run-dir", run);
  expect([trained.code, trained.out]).toEqual([0, ""]);
  expect(trained.err).toContain("/checkpoints/last: the tester, which only its system can load");
  // Three actions are few because there are no more.
  expect(trained.err).not.toMatch(/Hugging Face|nearly identical|different texts/u);
  const steps = parseMetricsLines(readFileSync(join(run, "metrics.jsonl"), "utf8"));
  for (const step of steps) {
    expect(step).toMatchObject({ "turns/done": 40, "probes/distinct": 3, "turns/empty_probes": null });
  }
  expect(doubtsOfTraining(steps)).toEqual([]);

  const card = readFileSync(join(best, "README.md"), "utf8");
  expect(card).not.toMatch(/library_name|model-index|astra-rl serve|undefined/u);
  expect(card).toContain("| system | cart.ts\\#Cart |");

  const evaluated = await runCommand("eval", file, "--output", record, "--tester", best, "--quiet");
  expect([evaluated.code, evaluated.err]).toEqual([0, ""]);
  expect(evaluated.out).toMatch(/^turns failed, probes, responses empty +0, –, – of 32$/mu);
  // Nothing is scored: not even a share of 0.
  expect(evaluated.out).not.toMatch(/up to each turn|\b0\.0 %|undefined/u);
  expect(evaluated.out).toContain("Doubtful (not-judged)");
  const redone = await runCommand("card", run, "--evaluation", record, "--quiet");
  expect([redone.code, redone.err]).toEqual([0, ""]);
});
