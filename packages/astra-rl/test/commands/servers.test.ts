import { spawn } from "node:child_process";
import { copyFileSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, expect, it, vi } from "vitest";
import { graphFromRecord, stringifyGraph } from "@astra-rl/method";
import { parseEvaluationRecord, parseGraphLines, parseRunRecord } from "@astra-rl/records";
import {
  anthropicMessage,
  completion,
  json,
  lastText,
  loopback,
  type Responder,
} from "../../../http/test/loopback.js";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

const PROGRAM = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));
const SECRETS = { MY_KEY: "sk-planted-secret-1", MY_HEADER: "planted-header-22" };

afterEach(() => {
  for (const name of Object.keys(SECRETS)) delete process.env[name];
});

function configuration(
  models: string,
  training = "trainingSteps: 2, schedule: constant, checkpointEvery: 1",
): string {
  const folder = temporaryFolder();
  writeFileSync(join(folder, "prompts.txt"), "Hello. \nIt rained. \nWhat now? \n");
  const file = join(folder, "run.yaml");
  writeFileSync(
    file,
    `
seed: 5
models: { ${models} }
prompts: { train: ./prompts.txt, dev: ./prompts.txt, test: ./prompts.txt }
sampler: { width: 2, depth: 2 }
scorer: { type: keyword, entries: [{ term: fool, weight: 0.9 }] }
generation: { tester: { maxNewTokens: 4, minNewTokens: 3 }, target: { maxNewTokens: 4, topK: 0 } }
training: { ${training}, evaluateEvery: 1, numEpisodesPerExperience: 2 }
`,
  );
  return file;
}

const server = (baseURL: string, more = "") =>
  `{ type: openai, baseURL: "${baseURL}", model: m, retry: { attempts: 2, delay: 0.001 }${more} }`;

const local = (baseURL: string, more = "") =>
  `tester: embedded:chatter, target: ${server(baseURL, more)}, likelihood: embedded:chatter`;

/** Whether the target answers plain questions differently is not what these evaluations are about. */
const evaluate = (file: string, ...args: string[]) =>
  runCommand("eval", file, "--accept", "target-silent", ...args);

/** Rude to every other text, and the same to the same. */
const rude: Responder = (asked, response) =>
  json(response, 200, completion(asked, lastText(asked).length % 2 === 0 ? "You fool." : "Fine."));

const filesIn = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));

it("rollout and eval query a server, count outcomes of turns, and report what was spent", async () => {
  const { baseURL, asked } = await loopback((one, response) => {
    const isAbout = (text: string) => one.body.messages!.some(({ content }) => content.includes(text));
    if (isAbout("What now?"))
      return json(response, 400, { error: { code: "content_filter", message: "policy" } });
    if (isAbout("It rained."))
      return json(response, 200, completion(one, null, { message: { content: null, refusal: "I can't." } }));
    return rude(one, response);
  });
  const file = configuration(local(baseURL));
  const rolled = await runCommand("rollout", file, "--episodes", "12", "--json");
  expect([rolled.code, rolled.err]).toEqual([
    0,
    expect.stringMatching(/target: m at .*\ntarget: \d+ calls, .* tokens read/s),
  ]);
  const graphs = parseGraphLines(rolled.out);
  const nodes = graphs.flatMap(({ children }) => [...children, ...children.flatMap((each) => each.children)]);
  for (const { response, note, failure } of nodes) {
    if (note === "refused") expect(response).toBe("I can't.");
    if (failure !== undefined) expect([failure.stage, failure.cause]).toEqual(["target", "filtered"]);
  }
  expect(nodes.some(({ note }) => note === "refused")).toBe(true);
  expect(nodes.some(({ failure }) => failure !== undefined)).toBe(true);

  const output = join(file, "..", "evaluation.json");
  const before = asked.length;
  const evaluated = await evaluate(file, "--output", output);
  const { summary, details, measured } = parseEvaluationRecord(readFileSync(output, "utf8"));
  const turns = details.flatMap(({ per_turn }) => per_turn);
  const filtered = turns.filter(({ outcome }) => outcome === "filtered");
  // One of the three conversations ends at the filter; another is refused in both of its turns.
  expect([evaluated.code, filtered.length]).toEqual([0, 1]);
  expect(summary.outcomes).toEqual({ filtered: 1, refused: 2 });
  for (const { error, response_harm } of filtered)
    expect([error, response_harm]).toEqual([expect.stringContaining("filter"), null]);
  expect(measured!.target).toEqual({ model: `${baseURL} m`, files: {} });
  expect(measured!["servers"]).toMatchObject({ target: { limit: "max_tokens", limit_holds: true } });
  expect(asked.length).toBeGreaterThan(before);
  // The answers of a complete evaluation are only in its record.
  expect(existsSync(`${output}.answers.jsonl`)).toBe(false);
});

it("eval queries Anthropic's API, and records it", async () => {
  const { baseURL, asked } = await loopback((one, response) =>
    lastText(one).includes("It rained.")
      ? json(response, 200, anthropicMessage(one, "I am", { stop_reason: "refusal" }))
      : json(response, 200, anthropicMessage(one, "You fool.")),
  );
  process.env["MY_KEY"] = SECRETS.MY_KEY;
  const target = `{ type: anthropic, baseURL: "${baseURL}", model: m, apiKeyEnv: MY_KEY, system: Be kind. }`;
  const file = configuration(`tester: embedded:chatter, target: ${target}, likelihood: embedded:chatter`);
  const { code, out, err } = await evaluate(file, "--tester", "embedded:chatter", "--json");
  expect([code, err]).toEqual([
    0,
    expect.stringMatching(/target: m at .*; equal seeds give different answers/u),
  ]);
  const { summary, measured } = parseEvaluationRecord(out);
  expect(summary).toMatchObject({ n_rollouts: 3, n_scored: 2, n_errors: 1, n_successes: 2 });
  expect(summary.outcomes).toMatchObject({ filtered: 1 });
  expect(measured!.servers!["target"]).toMatchObject({ model: "m", limit: "max_tokens", limit_holds: true });
  expect(out).not.toContain(SECRETS.MY_KEY);
  expect(asked.every(({ url }) => url === "/v1/messages")).toBe(true);
  expect(asked.every(({ body }) => body["system"] === "Be kind.")).toBe(true);
});

it("an interrupted evaluation resumes with the recorded answers", async () => {
  let limit = 4;
  const { baseURL, asked } = await loopback((one, response) =>
    limit-- > 0 ? rude(one, response) : json(response, 401, { error: { message: "key revoked" } }),
  );
  const file = configuration(local(baseURL));
  const output = join(file, "..", "evaluation.json");
  const broken = await evaluate(file, "--output", output, "--set", "evaluation.batchSize=1");
  expect([broken.code, broken.err]).toEqual([
    2,
    expect.stringContaining("refuses to serve this account: status 401: key revoked"),
  ]);
  const told = asked.length - 1;
  limit = Infinity;
  const whole = await evaluate(file, "--output", output, "--set", "evaluation.batchSize=1");
  expect([whole.code, whole.err]).toEqual([0, expect.stringContaining(`has ${told} earlier answers`)]);
  const texts = asked
    .filter((_, at) => at !== told)
    .map(({ body }) => JSON.stringify([body.messages, body.seed]));
  expect(new Set(texts).size).toBe(texts.length);
});

it("a run that was stopped and resumed equals an uninterrupted one, and repeats no request", async () => {
  const { baseURL, asked } = await loopback(rude);
  const whole = join(temporaryFolder(), "whole");
  const parts = join(temporaryFolder(), "parts");
  const file = configuration(local(baseURL));
  expect(await runCommand("train", file, "--run-dir", whole, "--quiet")).toMatchObject({ err: "" });
  const told = asked
    .splice(0)
    .map(({ body }) => JSON.stringify(body))
    .sort();
  await runCommand("train", file, "--run-dir", parts, "--quiet", "--set", "training.trainingSteps=1");
  const resumed = await runCommand("train", file, "--run-dir", parts, "--resume", "--quiet");
  expect(resumed.err).toBe("");
  expect(asked.map(({ body }) => JSON.stringify(body)).sort()).toEqual(told);
  for (const name of ["graphs.jsonl", "evaluations.jsonl"]) {
    expect(readFileSync(join(parts, name), "utf8")).toBe(readFileSync(join(whole, name), "utf8"));
  }
  const record = parseRunRecord(readFileSync(join(whole, "run.json"), "utf8"));
  expect(record.models["target"]).toEqual({ model: `${baseURL} m`, files: {} });
  expect(record.servers).toMatchObject({ target: { seed_repeats: true } });
  // As if it was killed in the second step, after its answers arrived and before its checkpoint: they are reused from
  // the disk.
  const before = asked.length;
  const late = join(temporaryFolder(), "late");
  await runCommand("train", file, "--run-dir", late, "--quiet", "--set", "training.trainingSteps=1");
  copyFileSync(join(parts, "answers.jsonl"), join(late, "answers.jsonl"));
  const first = asked.length;
  await runCommand("train", file, "--run-dir", late, "--resume", "--quiet");
  expect(first).toBeGreaterThan(before);
  expect(asked.length).toBe(first);
  expect(readFileSync(join(late, "graphs.jsonl"), "utf8")).toBe(
    readFileSync(join(whole, "graphs.jsonl"), "utf8"),
  );
});

it("a run that was killed and resumed equals an uninterrupted one, and repeats only requests in flight", async () => {
  let [hold, held] = [Infinity, 0];
  const { baseURL, asked } = await loopback((one, response) => {
    if (asked.length <= hold) return rude(one, response);
    held++;
  });
  const file = configuration(local(baseURL));
  const [whole, killed] = [join(temporaryFolder(), "whole"), join(temporaryFolder(), "killed")];
  await runCommand("train", file, "--run-dir", whole, "--quiet");
  const identities = () => asked.splice(0).map(({ body }) => JSON.stringify(body));
  const told = identities();
  // In the middle of the second step.
  hold = Math.ceil(0.7 * told.length);
  const child = spawn(process.execPath, [PROGRAM, "train", file, "--run-dir", killed, "--quiet"]);
  const ended = new Promise((resolve) => child.once("close", resolve));
  const answers = () => readFileSync(join(killed, "answers.jsonl"), "utf8").match(/"request"/g)!.length;
  await vi.waitFor(() => expect([held > 0, answers()]).toEqual([true, hold]), { timeout: 50_000 });
  child.kill("SIGKILL");
  await ended;
  const first = identities();
  expect(existsSync(join(killed, "checkpoints", "last"))).toBe(true);
  hold = Infinity;
  const resumed = await runCommand("train", file, "--run-dir", killed, "--resume", "--quiet");
  expect([resumed.code, resumed.err]).toEqual([
    0,
    expect.stringContaining("taking over the lock of process"),
  ]);
  const second = identities();
  expect(first.length + second.length).toBe(told.length + held);
  expect([...new Set([...first, ...second])].sort()).toEqual([...new Set(told)].sort());
  for (const name of ["graphs.jsonl", "evaluations.jsonl"]) {
    expect(readFileSync(join(killed, name), "utf8")).toBe(readFileSync(join(whole, name), "utf8"));
  }
  const weights = (run: string) => readFileSync(join(run, "checkpoints", "last", "model.safetensors"));
  expect(weights(killed).equals(weights(whole))).toBe(true);
});

it("warns of a server that ignores parameters, or gives every seed the same answer", async () => {
  const { baseURL } = await loopback(rude, {
    probe: (one, response) =>
      json(response, 200, completion(one, JSON.stringify(one.body["top_k"] ?? one.body.seed))),
  });
  const deaf = await loopback(rude, {
    probe: (one, response) => json(response, 200, completion(one, `one ${one.body.seed}`)),
  });
  const file = configuration(local(baseURL));
  const topK = ["--set", "generation.target.topK=5"];
  const alike = await runCommand("rollout", file, "--episodes", "1", "--json", ...topK);
  expect(alike.err).toContain(
    "the target's server gave the same answer to different seeds: it may decode greedily",
  );
  const ignored = await runCommand("rollout", configuration(local(deaf.baseURL)), "--json", ...topK);
  expect(ignored.err).toContain(
    "the target's server accepts top_k without effect: set generation.target to what the server does",
  );
  const greedy = ["--set", "generation.target.greedy=true"];
  const asked = await runCommand("rollout", file, "--episodes", "1", "--json", ...greedy);
  expect([asked.code, asked.err]).toEqual([0, expect.not.stringContaining("different seeds")]);
});

it("a server that echoes prompts provides likelihoods, and is recorded and journaled like the others", async () => {
  const { baseURL, asked } = await loopback((one, response) => {
    if (one.body["echo"] !== true) return rude(one, response);
    // A token for each character, each of log-probability −0.5.
    const tokens = Array.from(`${one.body.prompt}!`);
    const logprobs = { tokens, token_logprobs: [null, ...tokens.slice(1).map(() => -0.5)] };
    json(response, 200, {
      model: "m",
      choices: [{ text: tokens.join(""), finish_reason: "length", logprobs }],
    });
  });
  const echoing = server(baseURL, ", api: completions");
  const file = configuration(`tester: embedded:chatter, target: ${server(baseURL)}, likelihood: ${echoing}`);
  const run = join(temporaryFolder(), "run");
  const trained = await runCommand("train", file, "--run-dir", run);
  expect([trained.code, trained.err]).toEqual([0, expect.stringMatching(/^likelihood: \d+ calls, /m)]);
  expect(trained.err).toContain(
    "the likelihood's server serves chats, but as the likelihood model it reads conversations as plain text",
  );
  const record = parseRunRecord(readFileSync(join(run, "run.json"), "utf8"));
  expect(record.models["likelihood"]).toEqual({ model: `${baseURL} m`, files: {} });
  expect(record.servers!["likelihood"]).toMatchObject({ logprobs: 1, limit_holds: null });
  const graphs = parseGraphLines(readFileSync(join(run, "graphs.jsonl"), "utf8"));
  const nodes = graphs.flatMap(({ children }) => children);
  for (const { probe, likelihood } of nodes) {
    const tokens = Array.from(probe).length;
    expect(likelihood).toEqual({ nll: 0.5, total: -0.5 * tokens, tokens });
  }
  const prompts = asked.filter(({ body }) => body["echo"] === true).map(({ body }) => body.prompt);
  expect(prompts.length).toBe(new Set(prompts).size);
  const chat = configuration(
    `tester: embedded:chatter, target: embedded:chatter, likelihood: ${server(baseURL)}`,
  );
  const refused = await runCommand("eval", chat);
  expect([refused.code, refused.err]).toEqual([
    2,
    expect.stringContaining("models.likelihood.api: only /completions"),
  ]);
});

it("a used-up budget stops the run cleanly, which resumes with a higher one", async () => {
  const { baseURL, calls } = await loopback(rude);
  const file = configuration(
    local(baseURL, ", budget: { calls: 25 }"),
    "trainingSteps: 3, schedule: constant, checkpointEvery: 1",
  );
  const run = join(temporaryFolder(), "run");
  const stopped = await runCommand("train", file, "--run-dir", run);
  expect([stopped.code, stopped.err]).toEqual([
    2,
    expect.stringContaining(
      "models.target.budget.calls: the limit of 25 leaves no room for another call, after 25 calls",
    ),
  ]);
  expect(calls()).toBe(25);
  const again = await runCommand("train", file, "--run-dir", run, "--resume");
  expect([again.code, calls()]).toEqual([2, 25]);
  const whole = await runCommand(
    "train",
    file,
    "--run-dir",
    run,
    "--resume",
    "--set",
    "models.target.budget.calls=500",
  );
  expect([whole.code, whole.err]).toEqual([0, expect.not.stringContaining("budget")]);
});

it("a tester on a server works in rollouts and evaluations, and is not trained; targets can be mixed", async () => {
  const { baseURL, asked } = await loopback((one, response) =>
    json(response, 200, completion(one, " Well?")),
  );
  const models = `tester: ${server(baseURL)}, target: embedded:chatter, otherTargets: [${server(baseURL)}], likelihood: embedded:chatter`;
  const file = configuration(models);
  const evaluated = await evaluate(file, "--json");
  // Nine probes that are one text are no evidence (3).
  expect([evaluated.code, evaluated.err]).toEqual([3, expect.stringContaining("tester: m at ")]);
  const { summary, details } = parseEvaluationRecord(evaluated.out);
  expect(details.flatMap(({ per_turn }) => per_turn).every(({ probe }) => probe === " Well?")).toBe(true);
  expect(summary.mean_probe_nll).toBeGreaterThan(0);
  expect(asked[0]!.body.messages).toEqual([{ role: "user", content: expect.any(String) as string }]);
  const trained = await runCommand("train", file, "--run-dir", join(file, "..", "run"));
  expect([trained.code, trained.err]).toEqual([
    2,
    expect.stringContaining("a tester that is trained must be a checkpoint"),
  ]);
});

it("no secret appears in any file or line, though the server repeats them everywhere", async () => {
  Object.assign(process.env, SECRETS);
  const all = Object.values(SECRETS);
  const leaks = ({ headers }: { headers: object }) => `you sent ${JSON.stringify(headers)} ${all.join(" ")}`;
  let seen = 0;
  // Also as the name of its model, from the first answer on.
  const model = `m ${all.join(" ")}`;
  const probe: Responder = (one, response) =>
    json(response, 200, { ...completion(one, `one ${one.body.seed}`), model });
  const respond: Responder = (one, response) => {
    if (one.headers["authorization"] === `Bearer ${all[0]}` && one.headers["x-own"] === all[1]) seen++;
    if (one.call % 3 === 0) return json(response, 500, { error: { message: leaks(one) } });
    const more = one.call % 3 === 1 ? { finish_reason: leaks(one) } : {};
    return json(response, 200, { ...completion(one, leaks(one), more), model });
  };
  const { baseURL } = await loopback(respond, { probe });
  const file = configuration(local(baseURL, ", apiKeyEnv: MY_KEY, headers: { X-Own: MY_HEADER }"));
  const run = join(temporaryFolder(), "run");
  const output = join(run, "evaluation.json");
  const results = [
    await runCommand("train", file, "--run-dir", run),
    await runCommand("rollout", file, "--json"),
    await runCommand("eval", file, "--output", output),
    await runCommand("report", run, "--output", join(run, "report.html")),
    await runCommand("eval", file, "--set", "models.target.apiKeyEnv=sk-planted-secret-1"),
    await runCommand("eval", file, "--set", "models.target.baseURL=http://me:planted-header-22@localhost/v1"),
    await runCommand("eval", file, "--set", "models.target.headers.X-Own=planted-header-22"),
  ];
  expect(seen).toBeGreaterThan(10);
  expect(results.slice(4).map(({ code }) => code)).toEqual([2, 2, 2]);
  const { measured } = parseEvaluationRecord(readFileSync(output, "utf8"));
  expect(measured!["servers"]).toMatchObject({ target: { model: "m [secret] [secret]" } });
  const shown = [
    ...results.flatMap(({ out, err }) => [out, err]),
    ...filesIn(run).map((path) => readFileSync(path, "latin1")),
  ];
  for (const text of shown) for (const secret of all) expect(text).not.toContain(secret);
});

it("warns of a server that reports no token counts if a budget needs them", async () => {
  const uncounted: Responder = (one, response) =>
    json(response, 200, { ...completion(one, "Fine."), usage: { prompt_tokens: 0, completion_tokens: 0 } });
  const { baseURL } = await loopback(uncounted, { probe: uncounted });
  const warned = async (more: string) =>
    (await runCommand("rollout", configuration(local(baseURL, more)), "--episodes", "1", "--json")).err;
  const warning = "the target's server does not report token counts, or reports 0";
  expect(await warned(", budget: { tokens: 100000 }")).toContain(warning);
  expect(await warned(", price: { input: 1, output: 1 }")).toContain(warning);
  expect(await warned("")).not.toContain(warning);
});

it("a server requires a likelihood model; an unreachable one leaves no run folder", async () => {
  const { baseURL } = await loopback(rude);
  const bare = configuration(`tester: embedded:chatter, target: ${server(baseURL)}`);
  const refused = await runCommand("train", bare, "--run-dir", join(bare, "..", "run"));
  expect([refused.code, refused.err]).toEqual([2, expect.stringContaining("likelihood")]);
  const gone = configuration(local("http://127.0.0.1:9/v1"));
  const run = join(gone, "..", "run");
  const answer = await runCommand("train", gone, "--run-dir", run);
  expect([answer.code, answer.err]).toEqual([
    2,
    expect.stringMatching(/no answer from http:\/\/127.0.0.1:9\/v1: m: no connection/),
  ]);
  expect(existsSync(join(run, "config.resolved.yaml"))).toBe(false);
});

it("continues conversations of a prompt file with their roles, in requests and records", async () => {
  const { baseURL, asked } = await loopback(rude);
  const messages = [
    { role: "system", content: "Sell tea." },
    { role: "user", content: "Hi" },
    { role: "assistant", content: "Welcome!" },
    { role: "user", content: "Prices?" },
  ];
  const given = (models: string) => {
    const chats = join(temporaryFolder(), "chats.jsonl");
    writeFileSync(chats, JSON.stringify({ messages }));
    const prompts = ["--set", `prompts.train=${chats}`];
    return runCommand("rollout", configuration(models), "--episodes", "1", "--json", ...prompts);
  };
  const target = server(baseURL, ", system: Be kind.");
  const told = await given(`tester: embedded:chat, target: ${target}, likelihood: embedded:chat`);
  expect([told.code, told.err]).toEqual([0, expect.not.stringContaining("several messages")]);
  const [record] = parseGraphLines(told.out);
  const [turn] = record!.children;
  expect(record!.context).toBe("Sell tea.HiWelcome!Prices?");
  expect(record!.promptMessages).toEqual([
    ["system", "Sell tea."],
    ["tester", "Hi"],
    ["target", "Welcome!"],
    ["prompt", "Prices?"],
  ]);
  expect(asked.map(({ body }) => body.messages)).toContainEqual([
    ...messages.slice(0, 3),
    { role: "user", content: `Prices?\n\n${turn!.probe}` },
  ]);
  expect(JSON.parse(stringifyGraph(graphFromRecord(record!)))).toEqual(record);

  const untold = await given(`tester: embedded:chatter, target: ${target}, likelihood: embedded:chat`);
  expect(untold.err).toContain(
    "prompts with several messages are read as one text, a line for each, because the tester uses plain text",
  );
  const [flat] = parseGraphLines(untold.out);
  expect(flat!.context).toBe("Sell tea.\nHi\nWelcome!\nPrices?");
  expect(flat!.promptMessages).toBeUndefined();
});

it("a judge is probed, journaled, counted and named like any other model on a server", async () => {
  process.env["MY_KEY"] = SECRETS.MY_KEY;
  const harmful = (text: string) => text.length % 3 === 0;
  const { baseURL, asked } = await loopback((one, response) => {
    const { message } = JSON.parse(lastText(one)) as { message: { content: string } };
    const content = JSON.stringify({ reason: process.env["MY_KEY"], harmful: harmful(message.content) });
    json(response, 200, completion(one, content));
  });
  const file = configuration("tester: embedded:chatter, target: embedded:chatter");
  const judge = `{ type: judge, baseURL: "${baseURL}", model: m, apiKeyEnv: MY_KEY }`;
  const run = join(temporaryFolder(), "run");
  const options = ["--run-dir", run, "--set", `scorer=${judge}`];
  const trained = await runCommand("train", file, ...options, "--set", "training.trainingSteps=1");
  expect([trained.code, trained.err]).toEqual([0, expect.stringMatching(/^judge m: \d+ calls, /m)]);
  const bodies = asked.map(({ body }) => JSON.stringify(body));
  expect(bodies.length).toBe(new Set(bodies).size);
  const record = parseRunRecord(readFileSync(join(run, "run.json"), "utf8"));
  expect(record.servers!["judge m"]).toMatchObject({ model: "m", omitted: [] });
  const graphs = parseGraphLines(readFileSync(join(run, "graphs.jsonl"), "utf8"));
  for (const { children } of graphs) {
    for (const { response, scores } of children) {
      expect(scores!["response"]).toBe(harmful(response as string) ? 1 : 0);
    }
  }
  for (const path of filesIn(run)) expect(readFileSync(path).includes(SECRETS.MY_KEY)).toBe(false);
  const out = join(temporaryFolder(), "evaluation.json");
  const evaluated = await runCommand("eval", file, "--set", `scorer=${judge}`, "--output", out);
  expect(evaluated.code).toBe(0);
  const { measured } = parseEvaluationRecord(readFileSync(out, "utf8"));
  expect(measured!.scorer).toMatchObject({ type: "judge", model: "m", rubric: "harm" });
});

it("a judge of a reward's term is probed at the start, journaled and counted as well", async () => {
  const { baseURL, asked } = await loopback((one, response) => {
    const harmful = lastText(one).length % 2 === 0;
    json(response, 200, completion(one, JSON.stringify({ reason: "r", harmful })));
  });
  const judge = `{ type: judge, baseURL: "${baseURL}", model: m }`;
  const terms = `[{ type: harm, weight: 1 }, { type: gibberish, weight: 1, scorer: ${judge} }]`;
  const run = join(temporaryFolder(), "run");
  const trained = await runCommand(
    "train",
    configuration("tester: embedded:chatter, target: embedded:chatter"),
    "--run-dir",
    run,
    "--set",
    `reward={ terms: ${terms} }`,
    "--set",
    "training.trainingSteps=1",
  );
  expect([trained.code, trained.err]).toEqual([0, expect.stringMatching(/^judge m: \d+ calls, /m)]);
  expect(asked.length).toBeGreaterThan(0);
  const record = parseRunRecord(readFileSync(join(run, "run.json"), "utf8"));
  expect(record.servers!["judge m"]).toMatchObject({ model: "m", omitted: [] });
  const answers = readFileSync(join(run, "answers.jsonl"), "utf8").trim().split("\n");
  expect(answers.filter((line) => line.includes("harmful")).length).toBe(asked.length);
});

it("a judge as second scorer gets the responses of evaluations, and none of training", async () => {
  const { baseURL, asked } = await loopback((one, response) =>
    json(response, 200, completion(one, JSON.stringify({ reason: "r", harmful: true }))),
  );
  const file = configuration("tester: embedded:chatter, target: embedded:chatter");
  const second = `evaluation.secondScorer={ type: judge, baseURL: "${baseURL}", model: m }`;
  const run = join(temporaryFolder(), "run");
  const settings = [
    "--set",
    second,
    "--set",
    "training.trainingSteps=1",
    "--set",
    "training.evaluateEvery=0",
  ];
  expect((await runCommand("train", file, "--run-dir", run, ...settings)).code).toBe(0);
  expect(asked.filter(({ body }) => JSON.stringify(body).includes("harmful")).length).toBe(0);
  const out = join(temporaryFolder(), "evaluation.json");
  const evaluated = await runCommand("eval", file, "--set", second, "--output", out);
  expect([evaluated.code, evaluated.err]).toEqual([0, expect.stringContaining("judge m: ")]);
  expect(evaluated.out).toContain("Cohen's kappa");
  const { measured, summary, details } = parseEvaluationRecord(readFileSync(out, "utf8"));
  expect(measured!.second_scorer).toMatchObject({ type: "judge", model: "m", rubric: "harm" });
  expect(summary.second).toMatchObject({ n_neither: 0, n_first_only: 0, success_rate: 1 });
  expect(details.every(({ per_turn }) => per_turn.every((turn) => turn.second_response_harm === 1))).toBe(
    true,
  );
});

it("a judge by goals reads the goal of each prompt, and a rubric without {goal} is refused for them", async () => {
  const { baseURL, asked } = await loopback((one, response) =>
    json(response, 200, completion(one, lastText(one).startsWith("tea|") ? "yes" : "no")),
  );
  const folder = temporaryFolder();
  const prompts = join(folder, "goals.jsonl");
  const rows = ["tea", "salt"].map((goal) => JSON.stringify({ prompt: "What now?", goal }));
  writeFileSync(prompts, rows.join("\n"));
  const [ofGoals, without] = ["{goal}|{response}", "{response}"].map((text, at) => {
    const file = join(folder, `rubric-${at}.txt`);
    writeFileSync(file, `${text}\n`);
    return `scorer={ type: judge, baseURL: "${baseURL}", model: m, file: "${file}", read: yes-no }`;
  });
  const file = configuration("tester: embedded:chatter, target: embedded:chatter");
  const out = join(folder, "evaluation.json");
  const evaluated = (scorer: string) =>
    runCommand("eval", file, "--set", `prompts.test=${prompts}`, "--set", scorer, "--output", out);
  expect((await evaluated(ofGoals!)).code).toBe(0);
  expect(new Set(asked.map((one) => lastText(one).split("|")[0]))).toEqual(new Set(["tea", "salt"]));
  const { details } = parseEvaluationRecord(readFileSync(out, "utf8"));
  const harms = details.map(({ per_turn }) => per_turn.map((turn) => turn.response_harm).join());
  expect(new Set(harms.flatMap((each) => each.split(",")))).toEqual(new Set(["1", "0"]));
  const refused = await evaluated(without!);
  expect([refused.code, refused.err]).toEqual([2, expect.stringContaining("does not read them")]);
});
