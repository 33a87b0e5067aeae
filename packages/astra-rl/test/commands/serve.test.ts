import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { expect, it, onTestFinished, vi } from "vitest";
import { parseGraphLines } from "@astra-rl/records";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

const PROGRAM = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));

async function started(...args: string[]) {
  const child = spawn(process.execPath, [PROGRAM, "serve", "--port", "0", ...args], {
    env: { ...process.env, MY_TOKEN: "secret-token" },
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let err = "";
  child.stderr.on("data", (data: Buffer) => (err += data.toString()));
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const baseURL = line.toString().trim();
  const stop = async () => {
    child.kill("SIGINT");
    const [code] = (await once(child, "exit")) as [number];
    return { code, err };
  };
  return { baseURL, openai: new OpenAI({ baseURL, apiKey: "secret-token", maxRetries: 0 }), stop };
}

it("serves a model and its adapters under their names, and stops cleanly", async () => {
  const folder = temporaryFolder();
  const file = join(folder, "run.yaml");
  await runCommand("init", file, "--tester", goldenFolder, "--target", goldenFolder);
  const settings = [
    "models.lora.targetModules=[c_attn]",
    "models.lora.rank=2",
    "training.learningRate=0.5",
    "training.trainingSteps=1",
    "training.evaluateEvery=0",
    "sampler.depth=1",
    "training.warmupSteps=0",
    "generation.tester.maxNewTokens=4",
    "generation.target.maxNewTokens=4",
    "scorer={type: keyword, entries: [{term: a, weight: 0.3}, {term: e, weight: 0.5}]}",
  ].flatMap((setting) => ["--set", setting]);
  const run = join(folder, "run");
  const { code, err } = await runCommand("train", file, "--run-dir", run, ...settings, "--quiet");
  expect([code, err]).toEqual([0, ""]);
  const adapter = join(run, "checkpoints", "last");
  const { openai, stop } = await started(
    "--model",
    goldenFolder,
    "--name",
    "base",
    "--adapter",
    `tuned=${adapter}`,
  );
  expect((await openai.models.list()).data.map(({ id }) => id)).toEqual(["base", "tuned"]);
  const ids = [5, 6, 7, 8];
  const logprobs = async (model: string) => {
    const { choices } = await openai.completions.create({
      model,
      prompt: ids,
      max_tokens: 0,
      echo: true,
      logprobs: 0,
    });
    return choices[0]!.logprobs!.token_logprobs!.slice(1);
  };
  const [base, tuned] = [await logprobs("base"), await logprobs("tuned")];
  expect(tuned).not.toEqual(base);
  // The adapter alone, as a checkpoint, is the same.
  const alone = await started("--model", adapter, "--name", "alone");
  const { choices } = await alone.openai.completions.create({
    model: "alone",
    prompt: ids,
    max_tokens: 0,
    echo: true,
    logprobs: 0,
  });
  choices[0]!
    .logprobs!.token_logprobs!.slice(1)
    .forEach((value, at) => expect(value).toBeCloseTo(tuned[at]!, 5));
  expect(await stop()).toEqual({ code: 0, err: expect.stringContaining("base (target): a window of") });
  expect((await alone.stop()).code).toBe(0);
});

it("reads conversations as configured, requires its token, and does not reveal it", async () => {
  const folder = temporaryFolder();
  const file = join(folder, "run.yaml");
  writeFileSync(
    file,
    `
models:
  tester: { path: embedded:chatter, format: plain, labels: { tester: "A: ", target: "B: " }, separator: "\\n" }
  target: embedded:chatter
scorer: { type: embedded }
prompts: { train: embedded, dev: embedded, test: embedded }
`,
  );
  writeFileSync(join(folder, "openers.txt"), "It rained.\n");
  const options = ["--config", file, "--role", "tester", "--token-env", "MY_TOKEN", "--name", "m"];
  const { baseURL, openai, stop } = await started(...options, "--prompts", join(folder, "openers.txt"));
  const denied = await fetch(`${baseURL}/models`);
  expect(denied.status).toBe(401);
  const answer = await openai.chat.completions.create({
    model: "m",
    messages: [
      { role: "user", content: "Generate your first message." },
      { role: "assistant", content: "So?" },
      { role: "user", content: "Yes." },
    ],
    max_tokens: 1,
    return_token_ids: true,
  } as OpenAI.ChatCompletionCreateParamsNonStreaming);
  const { prompt_token_ids: ids } = answer as unknown as { prompt_token_ids: number[] };
  const input = join(folder, "in.jsonl");
  writeFileSync(input, `${JSON.stringify({ text: "It rained." })}\n`);
  const { out } = await runCommand("encode", "--model", "embedded:chatter", "--input", input);
  expect(ids.slice(0, 3)).toEqual((JSON.parse(out) as { ids: number[] }).ids.slice(0, 3));
  const { code, err } = await stop();
  expect([code, err.includes("secret-token")]).toEqual([0, false]);
});

it("generates with the settings of the configured tester by default", async () => {
  const folder = temporaryFolder();
  const file = join(folder, "run.yaml");
  writeFileSync(join(folder, "prompts.txt"), "I lost my job today.\nWhat now?\nHello.\n");
  writeFileSync(
    file,
    `
models: { tester: { path: embedded:chat, system: "You are a poet." }, target: embedded:chat, date: 2026-02-03 }
prompts: { train: ./prompts.txt, dev: ./prompts.txt, test: ./prompts.txt }
scorer: { type: embedded }
sampler: { width: 1, depth: 1 }
generation:
  tester: { maxNewTokens: 20, greedy: true, repetitionPenalty: 1.4, stopStrings: ["o", "."] }
  target: { maxNewTokens: 4 }
`,
  );
  const rollout = await runCommand("rollout", file, "--episodes", "8", "--json");
  const graphs = parseGraphLines(rollout.out);
  const { openai, stop } = await started("--config", file, "--role", "tester", "--name", "m");
  const say = async (content: string, more: object = {}) => {
    const { choices } = await openai.chat.completions.create({
      model: "m",
      messages: [{ role: "user", content }],
      ...more,
    });
    return choices[0]!.message.content;
  };
  const said = graphs.map(({ children }) => children[0]!.probe);
  const asked = graphs.map(({ context }) => context as string);
  expect(new Set(asked).size).toBeGreaterThan(1);
  expect(await Promise.all(asked.map((prompt) => say(prompt)))).toEqual(said);
  // The request's settings take precedence.
  const longer = await say(asked[0]!, { stop: ["\u0000"] });
  expect([longer!.startsWith(said[0]!), longer!.length > said[0]!.length]).toEqual([true, true]);
  expect((await say(asked[0]!, { max_tokens: 1 }))!.length).toBeLessThan(10);
  expect((await stop()).code).toBe(0);
}, 60_000);

it.each([
  [[], "needs --model, or a --config that has one"],
  [["--model", "embedded:chatter", "--token-env", "ASTRA_NO_SUCH_VARIABLE"], "is not set or empty"],
  [["--model", "embedded:chatter", "--token-env", "ASTRA_SPACED_TOKEN"], "no white space"],
  [["--model", "embedded:chatter", "--host", "0.0.0.0"], "set a token (--token-env NAME)"],
  [["--model", "embedded:chatter", "--adapter", "x"], "NAME=FOLDER"],
  [["--model", "embedded:chatter", "--name", "a", "--adapter", "a=./none"], "none"],
  [["--model", "embedded:chatter", "--cache-memory", "1", "--parallel", "1024"], "allow more memory"],
  [["--model", "embedded:chatter", "--goal", "first-message"], "is for --role tester"],
  [["--model", "./nothing-here"], "nothing-here"],
])("refuses %j", async (options, message) => {
  vi.stubEnv("ASTRA_SPACED_TOKEN", "secret\n");
  const { code, err } = await runCommand("serve", "--port", "0", ...options);
  vi.unstubAllEnvs();
  expect(code).toBe(2);
  expect(err).toContain(message);
  expect(
    err
      .trim()
      .split("\n")
      .filter((line) => line.startsWith("astra-rl: ")).length,
  ).toBe(1);
});

it("serves as target and likelihood of a run, with the same texts and likelihoods as locally", async () => {
  const { baseURL, stop } = await started("--model", "embedded:chat", "--name", "m");
  const folder = temporaryFolder();
  writeFileSync(join(folder, "prompts.txt"), "I lost my job today.\nWhat now?\n");
  const configuration = (target: string, likelihood: string) => {
    const file = join(folder, "run.yaml");
    writeFileSync(
      file,
      `
models: { tester: embedded:chat, target: ${target}, likelihood: ${likelihood} }
prompts: { train: ./prompts.txt, dev: ./prompts.txt, test: ./prompts.txt }
scorer: { type: embedded }
sampler: { width: 2, depth: 2 }
generation: { tester: { maxNewTokens: 12 }, target: { maxNewTokens: 12, greedy: true } }
`,
    );
    return file;
  };
  const served = (api: string) => `{ type: openai, api: ${api}, baseURL: "${baseURL}", model: m }`;
  const options = ["--episodes", "4", "--json"];
  const local = await runCommand("rollout", configuration("embedded:chat", "embedded:chatter"), ...options);
  const theirs = await runCommand("rollout", configuration(served("chat"), "embedded:chatter"), ...options);
  expect(theirs.code).toBe(0);
  expect(theirs.err).not.toMatch(/ignores|refuses|does not/u);
  const texts = (lines: string) =>
    parseGraphLines(lines).map(({ children }) => JSON.stringify(children, ["probe", "response", "children"]));
  expect(texts(theirs.out)).toEqual(texts(local.out));
  const told = await runCommand("rollout", configuration(served("chat"), served("completions")), ...options);
  expect(told.code).toBe(0);
  const nll = (lines: string) =>
    parseGraphLines(lines).flatMap(({ children }) => children.map(({ likelihood }) => likelihood!.nll!));
  expect(nll(told.out).every((value) => value > 0 && value < 20)).toBe(true);
  await stop();
}, 60_000);

it("serves as the likelihood of a run with the values of the same model here, whatever the script", async () => {
  const { baseURL, stop } = await started("--model", "embedded:chatter", "--name", "m");
  const folder = temporaryFolder();
  writeFileSync(
    join(folder, "prompts.txt"),
    "안녕하세요, 오늘 날씨가 좋네요. \n我今天很高兴。 \nHello 🙂 there. \n",
  );
  writeFileSync(
    join(folder, "run.yaml"),
    `
models: { tester: embedded:chatter, target: embedded:chatter, likelihood: embedded:chatter }
prompts: { train: ./prompts.txt, dev: ./prompts.txt, test: ./prompts.txt }
scorer: { type: embedded }
sampler: { width: 2, depth: 1 }
generation: { tester: { maxNewTokens: 8 }, target: { maxNewTokens: 8 } }
`,
  );
  const rollout = async (...more: string[]) => {
    const { out } = await runCommand(
      "rollout",
      join(folder, "run.yaml"),
      "--episodes",
      "3",
      "--json",
      ...more,
    );
    return parseGraphLines(out).flatMap(({ children }) => children);
  };
  const served = `models.likelihood={ type: openai, api: completions, baseURL: "${baseURL}", model: m }`;
  const [here, there] = [await rollout(), await rollout("--set", served)];
  expect(there.map(({ probe }) => probe)).toEqual(here.map(({ probe }) => probe));
  // Text is not split into the tokens that were sampled where a word follows the space at the end of a prompt.
  const rows = here.flatMap(({ probe }, at) => (/^[a-z]/iu.test(probe) ? [] : [at]));
  expect(rows.length).toBeGreaterThan(2);
  for (const at of rows) {
    const [one, two] = [here[at]!.likelihood!, there[at]!.likelihood!];
    expect(two.tokens).toBe(one.tokens);
    expect(one.nll!).toBeGreaterThan(0.3);
    expect(two.nll!).toBeCloseTo(one.nll!, 5);
  }
  await stop();
}, 60_000);
