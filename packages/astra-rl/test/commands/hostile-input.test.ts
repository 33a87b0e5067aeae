import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { AstraError } from "@astra-rl/base";
import { train } from "@astra-rl/assembly";
import { DPO } from "@astra-rl/method";
import { zeros } from "@astra-rl/torch";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

// Findings of tests with hostile input: each was a hang, a stack trace, a message without a position, or invalid input
// accepted.
const { path } = temporaryFolder();
const program = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));
const hasPipes = spawnSync("mkfifo", ["--version"]).status === 0;

function file(name: string, text: string): string {
  writeFileSync(path(name), text);
  return path(name);
}

const MODELS = `models: {tester: ${goldenFolder}, target: ${goldenFolder}}\n`;
const SCORER = "scorer: {type: keyword, entries: [{term: a}]}\n";

function configuration(more = ""): string {
  file("prompts.json", '["Hello.", "A dog ran."]');
  return file(
    "run.yaml",
    `${MODELS}${SCORER}prompts: {train: prompts.json, dev: prompts.json, test: prompts.json}
sampler: {width: 2, depth: 1}
generation: {tester: {maxNewTokens: 3}, target: {maxNewTokens: 3}}
training: {trainingSteps: 1, numEpisodesPerExperience: 2, evaluateEvery: 0}
${more}`,
  );
}

describe("configurations", () => {
  test("ten unknown keys are reported, and the number of others", async () => {
    const keys = Array.from({ length: 9000 }, (_, index) => `key${index}: 1\n`).join("");
    const began = performance.now();
    const { code, err } = await runCommand("eval", file("keys.yaml", MODELS + SCORER + keys));
    expect(code).toBe(2);
    const lines = err.trimEnd().split("\n");
    expect(lines).toHaveLength(11);
    expect(lines[0]).toContain("keys.yaml:3:1: unknown key");
    expect(lines[10]).toBe("and 8990 more of this kind");
    expect(performance.now() - began).toBeLessThan(20_000);
  });

  test.each([
    [
      "keys",
      Array.from({ length: 40_000 }, (_, index) => `key${index}: 1\n`).join(""),
      "more than 10000 keys",
    ],
    [
      "anchors",
      Array.from({ length: 50_000 }, (_, index) => `key${index}: &a${index} 1\n`).join(""),
      "more than 1000 anchors and aliases",
    ],
  ])("too many %s are refused before parsing", async (_, text, words) => {
    const began = performance.now();
    const { code, err } = await runCommand("eval", file("many.yaml", text));
    expect(code).toBe(2);
    expect(err).toContain(`many.yaml:1:1: has ${words}`);
    expect(performance.now() - began).toBeLessThan(20_000);
  });

  test("tabs as indentation give one line", async () => {
    const text = `models:\n${"\ttester: x\n".repeat(13)}`;
    const { code, err } = await runCommand("eval", file("tabs.yaml", text));
    expect(code).toBe(2);
    expect(err).toBe(
      `astra-rl: ${path("tabs.yaml")}:2:1: this line is indented with a tab; indent with spaces throughout\n`,
    );
  });

  test("an alias without an anchor is reported with its position", async () => {
    const { err } = await runCommand("eval", file("alias.yaml", "seed: 1\nmodels: {tester: *nobody}\n"));
    expect(err).toContain(`alias.yaml:2:18: the alias "*nobody" has no anchor "&nobody" before it`);
  });

  test("an invalid pattern is reported with its position, and truncated", async () => {
    const scorer = `scorer:\n  type: keyword\n  entries:\n    - pattern: a\n    - pattern: "((${"x".repeat(90_000)}"\n`;
    const { code, err } = await runCommand("eval", file("pattern.yaml", MODELS + scorer));
    expect(code).toBe(2);
    expect(err).toContain('pattern.yaml:6:16: scorer.entries[1].pattern Invalid regular expression "((xx');
    expect(err).toContain(": Unterminated group");
    expect(err.length).toBeLessThan(1000);
  });

  test("minNewTokens above maxNewTokens is reported with its position, before models load", async () => {
    const run = file(
      "run.yaml",
      `${MODELS}${SCORER}generation:\n  target: {maxNewTokens: 4, minNewTokens: 5}\n`,
    );
    const { code, err } = await runCommand("train", run, "--run-dir", path("run"));
    expect(code).toBe(2);
    expect(err).toContain(
      "run.yaml:4:43: generation.target.minNewTokens must be at most maxNewTokens (4), got 5",
    );
  });

  test.each(["train", "eval", "rollout"])(
    "%s: a message longer than the window is reported before models load",
    async (command) => {
      const args = command === "train" ? ["--run-dir", path("run")] : [];
      const set = ["--set", "generation.target.maxNewTokens=6000"];
      const { code, err } = await runCommand(command, configuration(), ...args, ...set);
      expect(code).toBe(2);
      expect(err).toBe(
        "astra-rl: generation.target.maxNewTokens: must leave at least one token of context in the window of 64 tokens of " +
          `${goldenFolder}, got 6000\n`,
      );
    },
  );

  test("trees that are too deep to be read are refused", async () => {
    const { code, err } = await runCommand(
      "rollout",
      configuration(),
      "--set",
      "sampler={width: 1, depth: 20000}",
      "--set",
      "algorithm={type: reinforce}",
    );
    expect(code).toBe(2);
    expect(err).toContain("sampler.depth");
    expect(err).not.toContain("internal:");
  });
});

describe.skipIf(!hasPipes)("pipes", () => {
  const pipe = (name: string) => {
    spawnSync("mkfifo", [path(name)]);
    return path(name);
  };

  test("without a writer are not waited for", async () => {
    const run = configuration();
    const began = performance.now();
    const { code, err } = await runCommand("eval", run, "--quiet", "--set", `prompts.test=${pipe("p")}`);
    expect(code).toBe(2);
    expect(err).toContain(`${path("p")}: is a pipe to which nothing was written for 10 s; name a file`);
    expect(performance.now() - began).toBeLessThan(30_000);
  });

  test("with a late writer are read", async () => {
    const input = pipe("p");
    const writer = spawn("bash", ["-c", `sleep 1; echo '{"text": "Get lost."}' > ${input}`]);
    const scored = await runCommand("score", "--scorer", "embedded", "--input", input, "--quiet");
    expect(scored).toMatchObject({ code: 0, err: "" });
    expect(scored.json()).toHaveLength(1);
    if (writer.exitCode === null) await once(writer, "close");
  });

  test("in run folders are refused, by the report as by --resume", async () => {
    const run = configuration();
    expect((await runCommand("train", run, "--run-dir", path("run"), "--quiet")).code).toBe(0);
    rmSync(path("run", "graphs.jsonl"));
    pipe("run/graphs.jsonl");
    const words = `${path("run", "graphs.jsonl")}: must be a file, got a pipe`;
    const report = await runCommand("report", path("run"), "--output", path("page.html"));
    expect(report).toMatchObject({ code: 2 });
    expect(report.err).toContain(words);
    const resumed = await runCommand("train", run, "--run-dir", path("run"), "--resume");
    expect(resumed).toMatchObject({ code: 2 });
    expect(resumed.err).toContain(words);
  });
});

test("endless standard input is refused after 256 MiB", () => {
  const line = JSON.stringify({ text: "a".repeat(1000) });
  const { stderr, status } = spawnSync(
    "bash",
    ["-c", `yes '${line}' | ${process.execPath} ${program} score --scorer embedded --input - --quiet`],
    { encoding: "utf8" },
  );
  expect(stderr).toBe("astra-rl: standard input: gives more than 256 MiB; name a file, or parts of it\n");
  expect(status).toBe(2);
});

test("invalid paths are named", async () => {
  const folder = await runCommand("score", "--scorer", "embedded", "--input", path());
  expect(folder.err).toBe(`astra-rl: ${path()}: cannot read the input: it is a folder\n`);
  const empty = await runCommand("train", configuration(), "--run-dir", "");
  expect(empty).toMatchObject({ code: 2, err: 'astra-rl: --run-dir: must name a folder, got ""\n' });
  mkdirSync(path("gone"));
  const gone = spawnSync(
    "bash",
    [
      "-c",
      `cd ${path("gone")}; rmdir ${path("gone")}; ${process.execPath} ${program} train ${path("run.yaml")} --quiet`,
    ],
    { encoding: "utf8" },
  );
  expect(gone.stderr).toBe("astra-rl: the working directory no longer exists; change to another one\n");
  expect(gone.status).toBe(2);
});

test("names of folders and options are escaped on a terminal", async () => {
  const escape = "\u001B[31m\u202E";
  const option = await runCommand("eval", `--${escape}`, configuration());
  expect(option.err).toContain("--\\u{1b}[31m\\u{202e}");
  const run = await runCommand("train", configuration(), "--run-dir", path(`run${escape}`));
  expect(run.code).toBe(0);
  // eslint-disable-next-line no-control-regex
  expect(option.err + run.err + run.out).not.toMatch(/[\u001B\u202E]/u);
});

test("a run without steps does not block its folder; foreign files do", async () => {
  const run = configuration();
  mkdirSync(path("run", "checkpoints"), { recursive: true });
  mkdirSync(path("run", "inputs"));
  file("run/config.resolved.yaml", "seed: 0\n");
  file("run/run.json", "{}");
  expect(await runCommand("train", run, "--run-dir", path("run"), "--quiet")).toMatchObject({
    code: 0,
    err: "",
  });
  mkdirSync(path("other"));
  file("other/config.resolved.yaml", "seed: 0\n");
  file("other/thesis.txt", "");
  expect((await runCommand("train", run, "--run-dir", path("other"))).err).toContain(
    "already contains files",
  );
});

test("a score that is a string is shown as one", async () => {
  file("str.mjs", `export const str = () => "0.5";`);
  file("texts.jsonl", '{"text": "a"}\n');
  const args = ["--scorer", `${path("str.mjs")}#str`, "--input", path("texts.jsonl")];
  const { err } = await runCommand("score", ...args);
  expect(err).toContain('every score must be a number from 0 to 1, got "0.5"');
});

test("a graph 20,000 turns deep is refused by the report with a message", async () => {
  expect((await runCommand("train", configuration(), "--run-dir", path("run"), "--quiet")).code).toBe(0);
  const deep =
    '{"context":"x","children":['.repeat(1) +
    '{"context":"a","probe":"b","response":"c","reward":0,"children":['.repeat(20_000) +
    "]}".repeat(20_000) +
    '],"seed":0,"episode":0,"version":1,"step":1}\n';
  file("run/graphs.jsonl", deep);
  const { code, err } = await runCommand("report", path("run"), "--output", path("page.html"));
  expect(code).toBe(2);
  expect(err).toContain("graphs.jsonl:1: is nested too deeply to be read");
});

/** The output of `generate` with the model of the folder. */
function generated() {
  file("texts.jsonl", '{"prompt": "a"}\n');
  return runCommand("generate", "--model", path("model"), "--input", path("texts.jsonl"));
}

test("a dangling link is not treated as a missing file", async () => {
  cpSync(goldenFolder, path("model"), { recursive: true });
  rmSync(path("model", "generation_config.json"));
  symlinkSync("nowhere", path("model", "generation_config.json"));
  const { code, err } = await generated();
  expect(code).toBe(2);
  expect(err).toContain("generation_config.json: is a broken link");
});

test("an empty SHA256SUMS disables no check", async () => {
  cpSync(goldenFolder, path("model"), { recursive: true });
  file("model/SHA256SUMS", "garbage\n");
  const { code, err } = await generated();
  expect(code).toBe(2);
  expect(err).toContain("SHA256SUMS:1: must be a SHA-256 and the name of a file");
});

test("an invalid template is reported with its folder", async () => {
  cpSync(goldenFolder, path("model"), { recursive: true });
  file("model/chat_template.jinja", "{% if %}");
  file("chats.jsonl", '{"messages": [{"role": "user", "content": "a"}]}\n');
  const { err } = await runCommand("encode", "--model", path("model"), "--input", path("chats.jsonl"));
  expect(err).toContain(path("model", "chat_template.jinja"));
});

test("a tokenizer that puts megabytes before each text is refused", async () => {
  cpSync(goldenFolder, path("model"), { recursive: true });
  const place = path("model", "tokenizer.json");
  const tokenizer = JSON.parse(spawnSync("cat", [place], { encoding: "utf8" }).stdout) as Record<
    string,
    unknown
  >;
  tokenizer["normalizer"] = { type: "Prepend", prepend: "x".repeat(10_000_000) };
  writeFileSync(place, JSON.stringify(tokenizer));
  file("texts.jsonl", '{"text": "a"}\n');
  const { code, err } = await runCommand("encode", "--model", path("model"), "--input", path("texts.jsonl"));
  expect(code).toBe(2);
  expect(err).toContain("must have at most 1000 characters, but has 10000000");
});

const fresh = () => zeros([], { requiresGrad: true });

test.each([
  [
    "a vector",
    () => ({ loss: zeros([3], { requiresGrad: true }), logs: {} }),
    "the loss must be one number, got float32[3]",
  ],
  ["a number", () => 5, "must return { loss, logs } with loss a tensor, got 5"],
  ["no logs", () => ({ loss: fresh() }), "logs must be an object of numbers by name, got undefined"],
  ["a text", () => ({ loss: fresh(), logs: { a: "b" } }), 'the log a must be a number, got "b"'],
])("a custom algorithm whose step returns %s is refused, with what to return", async (_, result, words) => {
  class Own extends DPO {
    override step(): never {
      return Promise.resolve(result()) as never;
    }
  }
  const training = train({
    configuration: configuration(),
    algorithm: ({ system }) => new Own(system),
    runDirectory: path("run"),
  });
  const error: unknown = await training.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(AstraError);
  expect((error as Error).message).toContain(words);
});
