import { spawn, type ChildProcess } from "node:child_process";
import { cpSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { variants } from "../../../../scripts/rounds.js";
import { runCommand } from "../support/run-command.js";
import { keyedUniform } from "@astra-rl/base";
import { parseGraphLines, parseMetricsLines, type NodeRecord } from "@astra-rl/records";
import { chatterRun } from "../../../method/test/support/chatter-run.js";

const PROGRAM = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));

/** A test starts up to eight processes, on a machine whose processors other tests use: what hangs is ended later than elsewhere. */
const SLOW = { timeout: 240_000 };

const children = new Set<ChildProcess>();
afterEach(() => {
  for (const child of children) child.kill("SIGKILL");
  children.clear();
});

function configured(algorithm: string): string {
  // Beginnings differ: processes do not share what they have read of a common one.
  const prompts = Array.from({ length: 26 }, (_, at) => `${String.fromCodePoint(65 + at)} is first. `);
  return chatterRun({
    algorithm,
    prompts,
    newTokens: 8,
    seed: seedOfDistinctPrompts(6, prompts.length),
    training:
      "{ trainingSteps: 6, schedule: constant, evaluateEvery: 3, evaluationRollouts: 5, checkpointEvery: 1, numEpisodesPerExperience: 6, " +
      "batchSize: 4, gradientAccumulationSteps: 16, learningRate: 1e-4 }",
  }).file;
}

/** The first seed whose first episodes start from different prompts, as processes share nothing that they have read. */
function seedOfDistinctPrompts(episodes: number, prompts: number): number {
  for (let seed = 0; ; seed++) {
    const drawn = Array.from({ length: episodes }, (_, episode) =>
      Math.floor(keyedUniform({ seed, stream: "prompt", episode, node: 0 }, 0) * prompts),
    );
    if (new Set(drawn).size === episodes) return seed;
  }
}

interface Ended {
  code: number | null;
  out: string;
  err: string;
}

function start(args: readonly string[], env: Record<string, string> = {}) {
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
  children.add(child);
  let [out, err] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => (out += String(chunk)));
  child.stderr.on("data", (chunk: Buffer) => (err += String(chunk)));
  const ended = new Promise<Ended>((resolve) => {
    child.once("close", (code) => {
      children.delete(child);
      resolve({ code, out, err });
    });
  });
  return { child, ended };
}

const run = (...args: string[]) => start(args).ended;

/** Trains a run; one process is this one. */
async function train(file: string, name: string, ...options: string[]): Promise<string> {
  const folder = join(file, "..", name);
  const args = ["train", file, "--run-dir", folder, "--quiet", ...options];
  const ended = await (options.includes("--processes") ? run(...args) : runCommand(...args));
  expect(ended.err).toBe("");
  expect(ended.code).toBe(0);
  return folder;
}

const metricsOf = (folder: string) =>
  parseMetricsLines(readFileSync(join(folder, "metrics.jsonl"), "utf8"), folder);
const graphsOf = (folder: string) =>
  parseGraphLines(readFileSync(join(folder, "graphs.jsonl"), "utf8"), folder);

const said = (nodes: readonly NodeRecord[]): unknown[] =>
  nodes.map(({ probe, response, children: below }) => [probe, response, said(below)]);

/** Metrics but for times. */
const untimed = (folder: string) =>
  metricsOf(folder).map((record) =>
    Object.fromEntries(Object.entries(record).filter(([name]) => !name.startsWith("time/"))),
  );

const weightsOf = (folder: string) => readFileSync(join(folder, "checkpoints", "last", "model.safetensors"));

/** Ranks of a run, as a launcher would start them. */
function ranks(worldSize: number, port: number, args: readonly string[], env: Record<string, string> = {}) {
  return Array.from({ length: worldSize }, (_, rank) =>
    start(args, {
      RANK: String(rank),
      WORLD_SIZE: String(worldSize),
      MASTER_ADDR: "127.0.0.1",
      MASTER_PORT: String(port),
      ...env,
    }),
  );
}

let nextPort = 23_000 + (process.pid % 5000);
const port = () => (nextPort += 1);

describe.each([
  ["grpo", "{ type: grpo, klLossCoefficient: 0.05 }"],
  ["ppo", "{ type: ppo, klCoefficient: 0.05, epochs: 1, targetKL: 0.5 }"],
  ["dpo", "{ type: dpo, epochs: 2 }"],
])("%s among processes", SLOW, (_, algorithm) => {
  it("grows the same texts and learns the same as one process (two of them, in the night also four)", async () => {
    const file = configured(algorithm);
    // Only first steps are compared: from the second on, rounding may change what is sampled.
    const short = ["--set", "training.trainingSteps=1", "--set", "training.evaluateEvery=0"];
    const alone = await train(file, "alone", ...short);
    for (const processes of variants([2, 4])) {
      const together = await train(file, `of-${processes}`, "--processes", String(processes), ...short);
      const [one, other] = [graphsOf(alone).slice(0, 6), graphsOf(together).slice(0, 6)];
      expect(other.map(({ episode }) => episode)).toEqual(one.map(({ episode }) => episode));
      expect(other.map((graph) => said(graph.children))).toEqual(one.map((graph) => said(graph.children)));
      const [first, same] = [metricsOf(alone)[0]!, metricsOf(together)[0]!];
      for (const name of ["loss", "gradient/norm", "reward/mean", "probes/length"]) {
        const [value, expected] = [same[name] as number, first[name] as number];
        // The advantages of siblings cancel in the loss of a policy gradient.
        const size = Math.max(Math.abs(expected), name === "loss" ? 0.1 : 0);
        expect(Math.abs(value - expected), name).toBeLessThanOrEqual(1e-5 * size);
      }
      for (const name of [
        "tokens/tester/read",
        "tokens/tester/generated",
        "tokens/target/read",
        "tokens/target/generated",
        "updates/done",
        "items",
        "episodes",
      ]) {
        expect(same[name], name).toBe(first[name]);
      }
    }
  });
});

describe("a run of several processes", SLOW, () => {
  let file: string;
  let whole: string;
  beforeAll(async () => {
    file = configured("{ type: grpo }");
    whole = await train(file, "whole", "--processes", "2");
  }, 120_000);

  it("is reproducible, and resumes exactly after a kill of rank 0, in the night also of rank 1", async () => {
    const kills = [
      [0, 3],
      [1, 2],
    ] as const;
    for (const [victim, step] of variants(kills)) {
      const folder = join(file, "..", `killed-${victim}`);
      const own = port();
      const args = ["train", file, "--run-dir", folder, "--quiet"];
      const started = ranks(2, own, args);
      while (!existsSync(join(folder, "metrics.jsonl")) || metricsOf(folder).length < step) await sleep(20);
      started[victim]!.child.kill("SIGKILL");
      const killed = performance.now();
      const survivor = await started[1 - victim]!.ended;
      expect(performance.now() - killed).toBeLessThan(5000);
      expect(survivor).toEqual({
        code: 1,
        out: "",
        err: `astra-rl: rank ${victim} of 2 has exited, so all ranks exit; see its output for the reason\n`,
      });
      const ended = await Promise.all(ranks(2, port(), [...args, "--resume"]).map((each) => each.ended));
      expect(ended.map(({ code }) => code)).toEqual([0, 0]);
      expect(untimed(folder)).toEqual(untimed(whole));
      expect(readFileSync(join(folder, "graphs.jsonl"), "utf8")).toBe(
        readFileSync(join(whole, "graphs.jsonl"), "utf8"),
      );
      expect(weightsOf(folder).equals(weightsOf(whole))).toBe(true);
    }
  });

  it("resumes with another number of processes, with a warning", async () => {
    const folder = `${whole}-resumed`;
    cpSync(whole, folder, { recursive: true });
    const more = ["train", file, "--run-dir", folder, "--quiet", "--resume", "--set"];
    const alone = await runCommand(...more, "training.trainingSteps=7");
    expect(alone.code).toBe(0);
    expect(alone.err).toMatch(
      /computed on 1 thread of each of 2 processes .*, and resumes on 1 thread with .*--processes 2\n$/u,
    );
    const three = await run(...more, "training.trainingSteps=8", "--processes", "3");
    expect(three.code).toBe(0);
    expect(metricsOf(folder).map(({ step }) => step)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(metricsOf(folder).map(({ episodes }) => episodes)).toEqual([6, 12, 18, 24, 30, 36, 42, 48]);
  });

  it("stops cleanly at Ctrl-C of one rank, after the same step", async () => {
    const file = configured("{ type: grpo }");
    const folder = join(file, "..", "run");
    const args = ["train", file, "--run-dir", folder, "--quiet", "--set", "training.trainingSteps=500"];
    const started = ranks(2, port(), args);
    while (!existsSync(join(folder, "metrics.jsonl")) || metricsOf(folder).length < 2) await sleep(20);
    started[1]!.child.kill("SIGTERM");
    const [first, second] = await Promise.all(started.map((each) => each.ended));
    const done = metricsOf(folder).length;
    expect(first).toEqual({
      code: 1,
      out: "",
      err: `astra-rl: train: stopped after step ${done} of 500; resume with --run-dir ${folder} --resume\n`,
    });
    expect(second).toEqual({ code: 1, out: "", err: "" });
    expect(done).toBeLessThan(500);
  });

  it("reports an invalid configuration once, and which rank has a different one", async () => {
    const file = configured("{ type: grpo }");
    const wrong = await run("train", file, "--quiet", "--processes", "2", "--set", "training.batchSize=0");
    expect(wrong.code).toBe(2);
    expect(wrong.err).toMatch(/^astra-rl: --set training\.batchSize=0: [^\n]*\n$/u);
    const own = port();
    const folder = join(file, "..", "run");
    const [one] = ranks(1, own, ["train", file, "--run-dir", folder], { WORLD_SIZE: "2", RANK: "0" });
    const [other] = ranks(1, own, ["train", file, "--set", "seed=5"], { WORLD_SIZE: "2", RANK: "1" });
    const [first, second] = await Promise.all([one!.ended, other!.ended]);
    expect(first.code).toBe(2);
    expect(first.err).toContain(
      "astra-rl: rank 1: the configuration differs from that of rank 0; all ranks must run the same command on the same files",
    );
    expect(second.code).not.toBe(0);
    expect(existsSync(folder)).toBe(false);
  });

  it("refuses sweeps, and --processes under a launcher", async () => {
    const file = configured("{ type: grpo }");
    const sweep = await run("train", file, "--seeds", "1-2", "--processes", "2");
    expect(sweep).toMatchObject({ code: 2, out: "" });
    expect(sweep.err).toBe(
      "astra-rl: --seeds and --grid: each run is trained in a separate process; see --jobs\n",
    );
    const env = { RANK: "0", WORLD_SIZE: "2", MASTER_ADDR: "127.0.0.1", MASTER_PORT: String(port()) };
    const twice = await start(["train", file, "--processes", "2"], env).ended;
    expect(twice).toMatchObject({
      code: 2,
      err: "astra-rl: --processes: a launcher has started several processes already; leave it out\n",
    });
  });

  it.each([["demo"], ["harden", "run", "--output", "hardened"], ["replay", "attacks.json", "run.yaml"]])(
    "refuses %s under a launcher, whose processes would write the same files",
    async (...command) => {
      const env = { RANK: "1", WORLD_SIZE: "2", MASTER_ADDR: "127.0.0.1", MASTER_PORT: String(port()) };
      const ended = await start(command, env).ended;
      expect(ended).toMatchObject({ code: 2, out: "" });
      expect(ended.err).toContain(`${command[0]} runs in one process, but a launcher has started 2`);
    },
  );

  /** Of a tiny target, and a scorer that rewards a letter. */
  const ACCEPTED = "harmless-flagged,target-silent,target-echoes";

  it("evaluates and rolls out as one process does", async () => {
    const file = configured("{ type: grpo }");
    for (const command of [
      ["eval", file, "--json", "--quiet", "--accept", ACCEPTED, "--set", "evaluation.rollouts=7"],
      ["rollout", file, "--json", "--tokens", "--quiet", "--episodes", "5"],
    ]) {
      const [one, other] = [await runCommand(...command), await run(...command, "--processes", "2")];
      expect(other.err).toBe(one.err);
      expect(other.code).toBe(one.code);
      expectClose(linesOf(other.out), linesOf(one.out));
    }
  });
});

const linesOf = (text: string): unknown[] =>
  text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as unknown);

/** Equal but for the last bits of numbers. */
function expectClose(value: unknown, expected: unknown, path = ""): void {
  if (typeof expected === "number" && !Number.isInteger(expected)) {
    expect(Math.abs((value as number) - expected), path).toBeLessThanOrEqual(
      1e-5 * Math.max(1, Math.abs(expected)),
    );
  } else if (typeof expected === "object" && expected !== null) {
    expect(Object.keys(value as object), path).toEqual(Object.keys(expected));
    for (const [key, each] of Object.entries(expected)) {
      expectClose((value as Record<string, unknown>)[key], each, `${path}.${key}`);
    }
  } else expect(value, path).toEqual(expected);
}

describe("a target on a server", SLOW, () => {
  it("gets each request once from all processes together, within one limit", async () => {
    const asked: string[] = [];
    const server = createServer((request, response) => {
      let body = "";
      request.on("data", (chunk: Buffer) => (body += String(chunk)));
      request.on("end", () => {
        asked.push(body);
        response.setHeader("content-type", "application/json");
        const choice = {
          index: 0,
          message: { role: "assistant", content: `I see ${body.length + asked.length} of the birds. \n` },
          finish_reason: "stop",
        };
        response.end(
          JSON.stringify({
            id: "1",
            model: "m",
            choices: [choice],
            usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
          }),
        );
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port: at } = server.address() as { port: number };
    try {
      const file = configured("{ type: grpo }");
      const text = `${readFileSync(file, "utf8")}reward: { terms: [{ type: harm, weight: 1 }] }\n`
        .replace(
          "target: embedded:chatter",
          `target: { type: openai, baseURL: "http://127.0.0.1:${at}/v1", model: m, api: chat, budget: { calls: 1000 } }`,
        )
        .replace("target: { maxNewTokens: 8 }", "target: { maxNewTokens: 8, topK: 0 }")
        .replace(
          "evaluateEvery: 3, evaluationRollouts: 5, checkpointEvery: 1",
          "evaluateEvery: 0, checkpointEvery: 3",
        );
      writeFileSync(file, text);
      const folder = join(file, "..", "run");
      const args = ["train", file, "--run-dir", folder, "--quiet"];
      const started = ranks(2, port(), args);
      while (!existsSync(join(folder, "metrics.jsonl")) || metricsOf(folder).length < 4) await sleep(10);
      started[1]!.child.kill("SIGKILL");
      await Promise.all(started.map((each) => each.ended));
      expect(existsSync(join(folder, "answers.rank-1.jsonl"))).toBe(true);
      // Calls that the kill interrupted are repeated, since their answers were lost.
      const journals = ["answers.jsonl", "answers.rank-1.jsonl"].map((name) =>
        linesOf(readFileSync(join(folder, name), "utf8").replace(/[^\n]*$/u, "")),
      ) as Record<string, unknown>[][];
      const open = journals.flat().reduce((sum, line) => sum + ("reserved" in line ? 1 : -1), 0);
      // One process resumes with the answers of both.
      const resumed = await runCommand(...args, "--resume");
      expect(resumed.code).toBe(0);
      const times = new Map<string, number>();
      for (const body of asked) times.set(body, (times.get(body) ?? 0) + 1);
      const again = [...times].filter(([, count]) => count > 1);
      const turns = again.filter(([body]) => body.includes("is first"));
      expect(turns.length).toBeLessThanOrEqual(open);
      for (const [, count] of turns) expect(count).toBe(2);
      // Each process probes the server.
      for (const [body, count] of again) if (!body.includes("is first")) expect(count).toBe(3);
      expect(times.size).toBeGreaterThan(6 * 36);
      const before = asked.length;
      const limit = ["--processes", "2", "--set", "models.target.budget.calls=60"];
      const limited = await run("train", file, "--run-dir", `${folder}-limited`, "--quiet", ...limit);
      expect(limited.code).not.toBe(0);
      expect(limited.err).toMatch(
        /^astra-rl[^\n]*this process's part \(1 of 2\) of the limit of 60 leaves no room[^\n]*\n$/u,
      );
      expect(asked.length - before).toBeLessThanOrEqual(60);
    } finally {
      server.close();
    }
  });
});
