/**
 * Throughput of `astra-rl serve`: tokens per second with 16 concurrent requests, compared with the same model's batched
 * decoding without a server, measured in the same run.
 *
 *     npm run bench:serving -- [--model DIR] [--rows 16] [--tokens 64] [--repeats 5]
 *
 * Without --model, a GPT-2 of 124 million random weights.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Codec, GenerationSession, initializeGPT2, loadCausalLM, saveCausalLM } from "@astra-rl/lm";
import { busy as machineIsBusy, median } from "./measure.js";

const { values } = parseArgs({
  options: {
    model: { type: "string" },
    rows: { type: "string", default: "16" },
    tokens: { type: "string", default: "64" },
    repeats: { type: "string", default: "5" },
  },
});
const [rows, tokens, repeats] = [Number(values.rows), Number(values.tokens), Number(values.repeats)];
const world = fileURLToPath(new URL("../packages/assembly/world/chatter", import.meta.url));
const program = fileURLToPath(new URL("../packages/astra-rl/bin/astra-rl.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "serving-"));

async function checkpoint(): Promise<string> {
  if (values.model !== undefined) return values.model;
  const { tokenizer } = await loadCausalLM(world);
  const sizes = { vocabSize: 50257, contextLength: 1024, hiddenSize: 768, layers: 12, heads: 12 };
  const model = initializeGPT2({ ...sizes, bosId: 0, eosId: 0 }, 0);
  const directory = join(folder, "model");
  await saveCausalLM(directory, model, tokenizer);
  model.dispose();
  return directory;
}

const wasBusy = machineIsBusy();

try {
  const directory = await checkpoint();
  const { model, tokenizer } = await loadCausalLM(directory);
  const codec = Codec.of(tokenizer);
  const prompts = Array.from({ length: rows }, (_, row) =>
    codec.begin(`Text number ${row} is about something.`),
  );
  const sampling = {
    maxNewTokens: tokens,
    minNewTokens: tokens,
    temperature: 1,
    topK: 50,
    topP: 0.95,
    recordLogprobs: false,
  };
  const batched = () => {
    const started = performance.now();
    const session = GenerationSession.open(model, codec, prompts, { reserve: tokens });
    session.generate(
      sampling,
      prompts.map((_, node) => ({ seed: 1, stream: "bench", episode: 0, node })),
    );
    session.dispose();
    return (rows * tokens * 1000) / (performance.now() - started);
  };
  const server = spawn(
    process.execPath,
    [
      program,
      "serve",
      "--model",
      directory,
      "--port",
      "0",
      "--name",
      "m",
      "--quiet",
      "--parallel",
      String(rows),
    ],
    {
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  const url = await new Promise<string>((resolve) =>
    server.stdout.once("data", (line: Buffer) => resolve(line.toString().trim())),
  );
  const served = async (stream: boolean) => {
    const started = performance.now();
    await Promise.all(
      prompts.map(async (prompt) => {
        const body = {
          model: "m",
          prompt,
          max_tokens: tokens,
          min_tokens: tokens,
          top_k: 50,
          top_p: 0.95,
          stream,
        };
        const headers = { "content-type": "application/json" };
        const response = await fetch(`${url}/completions`, {
          method: "POST",
          headers,
          body: JSON.stringify(body),
        });
        await response.text();
      }),
    );
    return (rows * tokens * 1000) / (performance.now() - started);
  };
  const rates: Record<string, number[]> = { batched: [], served: [], streamed: [] };
  for (let run = 0; run <= repeats; run += 1) {
    const found = [batched(), await served(false), await served(true)] as const;
    // The first one warms both processes up.
    if (run > 0) Object.keys(rates).forEach((name, at) => rates[name]!.push(found[at]!));
  }
  server.kill("SIGTERM");
  model.dispose();
  const base = median(rates["batched"]!);
  for (const [name, measured] of Object.entries(rates)) {
    const rate = median(measured);
    console.log(
      `${name.padEnd(9)} ${rate.toFixed(0).padStart(7)} tokens/s   ${((100 * rate) / base).toFixed(0)} %   (${rows} × ${tokens}, median of ${repeats})`,
    );
  }
  if (wasBusy) console.log("The machine was busy: no verdict.");
} finally {
  rmSync(folder, { recursive: true, force: true });
}
