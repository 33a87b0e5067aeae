import { spawn, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { temporaryFolder } from "../support/run-command.js";

// The program as it is installed: set-up has built it, `npm test` begins with set-up.
const program = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));
const { path } = temporaryFolder();

const run = (args: readonly string[], environment: NodeJS.ProcessEnv = {}) =>
  spawnSync(process.execPath, [program, ...args], {
    encoding: "utf8",
    env: { ...process.env, ...environment },
  });

test("exit codes, and a stack trace only on request", () => {
  expect(run(["--version"])).toMatchObject({ status: 0, stderr: "" });
  const wrong = run(["train", path("none.yaml")]);
  expect(wrong).toMatchObject({ status: 2, stdout: "" });
  expect(wrong.stderr).toBe(
    `astra-rl: ${path("none.yaml")}: cannot read the configuration: there is no such file\n`,
  );
  expect(run(["train", path("none.yaml")], { ASTRA_RL_DEBUG: "1" }).stderr).toMatch(/\n {4}at /);
});

test("a closed pipe ends the command with the usual code and a line", () => {
  writeFileSync(path("texts.jsonl"), `${JSON.stringify({ text: "a ".repeat(5000) })}\n`.repeat(200));
  const command = `"${process.execPath}" "${program}" score --scorer embedded --input "${path("texts.jsonl")}" --quiet | head -n 1; echo "\${PIPESTATUS[0]}"`;
  const { stdout, stderr } = spawnSync("bash", ["-c", command], { encoding: "utf8" });
  expect(stderr).toBe("astra-rl: standard output was closed by its reader\n");
  expect(stdout).toMatch(/^\{"score":.*\n141\n$/);
});

test("Ctrl-C ends the step in progress; the run can be resumed", async () => {
  writeFileSync(path("prompts.json"), '["Hello.", "The lamp is warm."]');
  writeFileSync(
    path("run.yaml"),
    `models: {tester: ${goldenFolder}, target: ${goldenFolder}}
prompts: {train: prompts.json, dev: prompts.json}
scorer: {type: keyword, entries: [{pattern: "[a-m]", weight: 0.6}]}
sampler: {depth: 1}
generation: {tester: {maxNewTokens: 3}, target: {maxNewTokens: 3}}
training: {trainingSteps: 100000, schedule: constant, evaluateEvery: 0}
`,
  );
  const child = spawn(process.execPath, [
    program,
    "train",
    path("run.yaml"),
    "--run-dir",
    path("run"),
    "--json",
  ]);
  let errors = "";
  child.stderr.on("data", (chunk: Buffer) => (errors += chunk.toString()));
  child.stdout.once("data", () => child.kill("SIGINT"));
  const code = await new Promise((resolve) => child.once("close", resolve));
  expect(errors).toContain("Stopping after the step in progress");
  expect(code).toBe(1);
  const steps = /stopped after step (\d+) of 100000; resume with/.exec(errors)?.[1];
  const lines = () => readFileSync(path("run", "metrics.jsonl"), "utf8").trimEnd().split("\n");
  expect(String(lines().length)).toBe(steps);
  const more = Number(steps) + 1;
  const rest = run([
    "train",
    path("run.yaml"),
    "--run-dir",
    path("run"),
    "--resume",
    "--quiet",
    "--set",
    `training.trainingSteps=${more}`,
  ]);
  expect(rest).toMatchObject({ status: 0, stderr: "" });
  expect(lines()).toHaveLength(more);
});
