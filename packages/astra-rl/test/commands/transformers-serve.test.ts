import { spawn } from "node:child_process";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { parseGraphLines, parseRunRecord } from "@astra-rl/records";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

/**
 * The executable of a virtual environment with transformers[serving], torch and accelerate, which `npm run nightly` makes. It
 * is a third-party server.
 */
const SERVE = process.env["ASTRA_TRANSFORMERS"] ?? "";
if (SERVE === "") {
  process.stderr.write(
    "transformers-serve.test.ts is skipped: set ASTRA_TRANSFORMERS to the transformers of a virtual environment " +
      '(pip install torch accelerate "transformers[serving]"), or run npm run nightly\n',
  );
}

const CHAT = fileURLToPath(new URL("../../../assembly/world/chat/", import.meta.url));

const freePort = () =>
  new Promise<number>((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });

describe.skipIf(SERVE === "")("transformers serve", () => {
  let [baseURL, model, stop] = ["", "", () => {}];

  beforeAll(async () => {
    model = join(temporaryFolder(), "chat");
    cpSync(CHAT, model, { recursive: true });
    // Without do_sample it decodes greedily, at any temperature.
    writeFileSync(join(model, "generation_config.json"), '{ "eos_token_id": 0, "do_sample": true }');
    const port = await freePort();
    const options = ["--host", "127.0.0.1", "--port", `${port}`, "--device", "cpu", "--dtype", "float32"];
    const child = spawn(SERVE, ["serve", model, ...options], {
      stdio: "ignore",
      env: { ...process.env, HF_HUB_OFFLINE: "1" },
    });
    stop = () => void child.kill("SIGKILL");
    baseURL = `http://127.0.0.1:${port}/v1`;
    const health = async () => (await fetch(`http://127.0.0.1:${port}/health`)).ok;
    await vi.waitFor(async () => expect(await health()).toBe(true), { timeout: 100_000, interval: 500 });
  }, 120_000);
  afterAll(() => stop());

  const configuration = (target: string) => {
    const folder = temporaryFolder();
    const prompts = ["I lost my job today.", "On Sundays there is a steam train.", "What now?"];
    writeFileSync(join(folder, "prompts.json"), JSON.stringify(prompts));
    const file = join(folder, "run.yaml");
    writeFileSync(
      file,
      `
models: { tester: embedded:chat, target: ${target}, likelihood: embedded:chat }
prompts: { train: ./prompts.json, dev: ./prompts.json, test: ./prompts.json }
scorer: { type: embedded }
sampler: { width: 2, depth: 2 }
generation: { tester: { maxNewTokens: 16 }, target: { maxNewTokens: 16, topK: 0 } }
training: { trainingSteps: 2, numEpisodesPerExperience: 2, evaluateEvery: 2 }
`,
    );
    return file;
  };
  const served = () => `{ type: openai, baseURL: "${baseURL}", model: "${model}" }`;

  it("gives the same greedy answers as a local model, token for token", async () => {
    const greedy = ["--episodes", "6", "--json", "--set", "generation.target.greedy=true"];
    const theirs = await runCommand("rollout", configuration(served()), ...greedy);
    const ours = await runCommand("rollout", configuration("embedded:chat"), ...greedy);
    expect([theirs.code, ours.code]).toEqual([0, 0]);
    const texts = (lines: string) => parseGraphLines(lines).map(({ children }) => children.map(deep));
    expect(texts(theirs.out)).toEqual(texts(ours.out));
  }, 120_000);

  it("works as a target in training, with a local likelihood, and its behavior is detected and recorded", async () => {
    const run = join(temporaryFolder(), "run");
    const topK = ["--set", "generation.target.topK=50"];
    const trained = await runCommand("train", configuration(served()), "--run-dir", run, ...topK);
    expect([trained.code, trained.err]).toEqual([
      0,
      expect.stringContaining("the target's server rejects top_k: set generation.target"),
    ]);
    const { servers } = parseRunRecord(readFileSync(join(run, "run.json"), "utf8"));
    expect(servers!["target"]).toMatchObject({
      limit: "max_tokens",
      limit_holds: true,
      omitted: ["top_k"],
      logprobs: 0,
      seed_repeats: true,
    });
    const graphs = parseGraphLines(readFileSync(join(run, "graphs.jsonl"), "utf8"));
    expect(graphs.length).toBe(4);
    const nodes = graphs.flatMap(({ children }) => children);
    for (const node of nodes) {
      expect(node.failure).toBeUndefined();
      expect(node.likelihood!.tokens).toBeGreaterThan(0);
    }
    const responses = nodes.map(({ response }) => response);
    expect(new Set(responses).size).toBeGreaterThan(responses.length / 2);
  }, 120_000);
});

interface Turn {
  probe: unknown;
  response: unknown;
  children: readonly Turn[];
}

const deep = ({ probe, response, children }: Turn): unknown => [probe, response, children.map(deep)];
