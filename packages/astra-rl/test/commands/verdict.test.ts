import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { CANARY_RULES, parseEvaluationRecord } from "@astra-rl/records";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();
const QWEN = fileURLToPath(new URL("../../../lm/test/golden/families/qwen2", import.meta.url));

interface Setting {
  scorer?: string;
  target?: string;
  more?: string;
}

function configuration({
  scorer = "{type: keyword, entries: [{pattern: zzz}]}",
  target = goldenFolder,
  more = "",
}: Setting = {}): string {
  const prompts = Array.from({ length: 8 }, (_, index) => `Say ${index}.`);
  writeFileSync(path("prompts.json"), JSON.stringify(prompts));
  writeFileSync(
    path("judges.mjs"),
    `export const down = () => { throw new Error("the judge is down"); };
`,
  );
  writeFileSync(
    path("run.yaml"),
    `models: {tester: ${goldenFolder}, target: ${target}${more}}
prompts: {train: prompts.json, dev: prompts.json, test: prompts.json}
scorer: ${scorer}
sampler: {width: 2, depth: 2}
generation:
  tester: {maxNewTokens: 4}
  target: {maxNewTokens: 4}
training: {trainingSteps: 2, numEpisodesPerExperience: 2, evaluateEvery: 2, batchSize: 4}
`,
  );
  return path("run.yaml");
}

const DOWN = { scorer: "{type: ./judges.mjs#down}" };
const HARMLESS = "No conversation led to a harmful response";

test("a judge that always fails gives no verdict: train warns at the first step, and ends with 3", async () => {
  const { code, err } = await runCommand("train", configuration(DOWN), "--run-dir", path("run"));
  expect(code).toBe(3);
  expect(err).not.toContain(HARMLESS);
  expect(err).toContain(
    "step 1: this step is inconclusive: 12 of 12 turns failed; nothing was learned from it, first with " +
      '"scorer: the judge is down" (shown once)',
  );
  expect(err).toContain("No verdict on the target: 16 of 16 turns failed (first with");
  expect(err).toContain(
    "astra-rl: train: No verdict on the target: 24 of 24 turns failed; nothing was learned in 2 of 2 steps; ",
  );
  // The run is complete nevertheless.
  expect(readFileSync(path("run", "metrics.jsonl"), "utf8").trimEnd().split("\n")).toHaveLength(2);
  const markdown = await runCommand("report", path("run"), "--format", "markdown");
  expect(markdown.out).toContain("No verdict on the target");
  const page = await runCommand("report", path("run"), "--output", path("page.html"), "--quiet");
  expect(page).toMatchObject({ code: 0 });
  expect(readFileSync(path("page.html"), "utf8")).toContain("24 of 24 turns failed");
});

/** What the canary finds, before there is anything else to doubt. */
const ACCEPT = ["--accept", CANARY_RULES.join(",")];

test("eval gives no verdict either, and records counts and reasons", async () => {
  const { code, out, err } = await runCommand(
    "eval",
    configuration(DOWN),
    ...ACCEPT,
    "--output",
    path("e.json"),
    "--quiet",
  );
  expect(code).toBe(3);
  expect(out).not.toContain(HARMLESS);
  expect(out).toContain(
    'No verdict on the target: 16 of 16 turns failed (first with "scorer: the judge is down")',
  );
  expect(err).toContain("astra-rl: eval: No verdict on the target: 16 of 16 turns failed");
  const { summary } = parseEvaluationRecord(readFileSync(path("e.json"), "utf8"));
  expect(summary).toMatchObject({ n_turns: 16, n_failed_turns: 16 });
  // The configuration has one file for all prompts.
  expect(summary.doubts!.map(({ rule }) => rule)).toEqual([
    "failed-turns",
    "harmless-flagged",
    "some-empty-responses",
    "prompts-of-training",
  ]);
});

test("an empty target gives no verdict", async () => {
  const all = JSON.stringify(Array.from({ length: 0x250 }, (_, code) => String.fromCharCode(code)).slice(1));
  const { code, out } = await runCommand(
    "eval",
    configuration(),
    ...ACCEPT,
    "--quiet",
    "--set",
    `generation.target.stopStrings=${all}`,
  );
  expect(out).toMatch(/No verdict on the target: \d+ of 16 responses are empty/);
  expect(out).toMatch(/turns failed, probes, responses empty +0, \d+, \d+ of 16/);
  expect(code).toBe(3);
});

test("an evaluation that finds nothing with enough evidence ends with 0", async () => {
  const { code, out } = await runCommand("eval", configuration(), "--quiet");
  expect(out).toContain(HARMLESS);
  expect(code).toBe(0);
});

test("several targets are distinguished in the table and in the record of each rollout", async () => {
  const more = `, otherTargets: [${QWEN}]`;
  const scorer = "{type: keyword, entries: [{pattern: '[a-m]', weight: 0.6}]}";
  const { out } = await runCommand(
    "eval",
    configuration({ more, scorer }),
    ...ACCEPT,
    "--quiet",
    "--output",
    path("e.json"),
  );
  expect(out).toMatch(/success against target +\d+\.\d % \(\d+\/\d+\)/);
  expect(out).toMatch(/success against target-2 +\d+\.\d % \(\d+\/\d+\)/);
  const { summary, details } = parseEvaluationRecord(readFileSync(path("e.json"), "utf8"));
  expect(new Set(details.map(({ overall }) => overall.target))).toEqual(new Set(["target", "target-2"]));
  const counted = summary.targets!.map(({ target, n_rollouts }) => [target, n_rollouts]);
  expect(counted).toEqual(
    ["target", "target-2"].map((name) => [
      name,
      details.filter(({ overall }) => overall.target === name).length,
    ]),
  );
});

test("a target without rollouts is reported as never used", async () => {
  const more = `, otherTargets: [${QWEN}]`;
  const { out } = await runCommand(
    "eval",
    configuration({ more }),
    "--quiet",
    "--set",
    "evaluation.rollouts=1",
  );
  expect(out).toMatch(/success against target(-2)? +never used/);
  // The sentence claims nothing for it.
  if (out.includes(HARMLESS)) expect(out).toMatch(/harmful response; target(-2)? was never used\./);
  else expect(out).toMatch(/found conversation/);
});

test.each([
  ["tokenizer_config.json", JSON.stringify({ chat_template: "{{ messages }}" })],
  ["chat_template.jinja", "{{ messages }}"],
])(
  "a chat checkpoint that is read as plain text causes a warning before anything is generated (%s)",
  async (name, text) => {
    cpSync(goldenFolder, path("chat"), { recursive: true });
    const file = join(path("chat"), name);
    const before = name.endsWith(".json") ? (JSON.parse(readFileSync(file, "utf8")) as object) : null;
    const whole = before === null ? text : JSON.stringify({ ...before, ...(JSON.parse(text) as object) });
    writeFileSync(file, whole);
    const run = configuration({ target: `{path: ${path("chat")}, format: plain}` });
    const warning = "the target has a chat template but is configured for plain text";
    for (const args of [
      ["train", run, "--run-dir", path("run")],
      ["eval", run],
      ["rollout", run],
    ]) {
      const { err } = await runCommand(...args);
      expect(err).toContain(warning);
      expect(err).not.toContain("the tester has a chat template");
      const progress = err.search(/(step|rollout|episode) \d+\/\d+/);
      if (progress >= 0) expect(err.indexOf(warning)).toBeLessThan(progress);
    }
  },
);
