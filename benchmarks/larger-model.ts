/**
 * Requirements of a model with a billion parameters on this machine: an adapter's training steps with their bound and
 * the peak resident memory, the time of loading compared with reading the file, and the error message for training all
 * weights.
 *
 *     npx tsx benchmarks/make-llama.ts --prompts FILE.json --output .cache/llama-1.1b
 *     npx tsx benchmarks/larger-model.ts --model .cache/llama-1.1b --prompts FILE.json [--steps 3] [--limit GiB] [--output FILE.md]
 *
 * The error is that of a machine with --limit GiB left (default 12), which is simulated: see ASTRA_SYSTEM_ROOT in
 * packages/torch/src/control-groups.ts.
 */
import { execFile } from "node:child_process";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { measureRoofline, median } from "./measure.js";

const { values } = parseArgs({
  options: {
    model: { type: "string" },
    prompts: { type: "string" },
    steps: { type: "string", default: "3" },
    limit: { type: "string", default: "12" },
    output: { type: "string" },
  },
});
if (values.model === undefined || values.prompts === undefined) {
  console.error(
    "usage: larger-model.ts --model DIR --prompts FILE.json [--steps N] [--limit GiB] [--output FILE.md]",
  );
  process.exit(2);
}

const load = loadavg()[0]!;
const DEPTH = 3;
const NEW_TOKENS = 32;
const weights = join(values.model, "model.safetensors");
const bytes = statSync(weights).size;

/** Seconds of one thread to read the file from the system's cache. */
function readOnce(): number {
  const piece = Buffer.alloc(8 << 20);
  const started = performance.now();
  const file = openSync(weights, "r");
  while (readSync(file, piece) > 0);
  closeSync(file);
  return (performance.now() - started) / 1000;
}

interface Outcome {
  loadSeconds: number;
  peakResidentBytes: number;
  steps: { seconds: number; rollout_s: number; update_s: number; record: Record<string, number> }[];
}

function step(options: readonly string[], environment: NodeJS.ProcessEnv = {}): Promise<Outcome | string> {
  const script = fileURLToPath(new URL("step.ts", import.meta.url));
  const given = ["--model", values.model!, "--prompts", values.prompts!, "--episodes", "2", "--seed", "5"];
  return new Promise((fulfil) => {
    execFile(
      process.execPath,
      ["--import", "tsx", script, ...given, "--dtype", "auto", ...options],
      { env: { ...process.env, ...environment }, maxBuffer: 1 << 28 },
      (error, stdout, stderr) => {
        if (error === null) fulfil(JSON.parse(stdout) as Outcome);
        else fulfil(/^\w*Error: (.*)$/mu.exec(stderr)?.[1] ?? stderr);
      },
    );
  });
}

/** A root folder with system files that report this much memory. */
function systemWith(gibibytes: number): string {
  const root = mkdtempSync(join(tmpdir(), "astra-rl-system-"));
  mkdirSync(join(root, "proc/self"), { recursive: true });
  const kibibytes = gibibytes * 2 ** 20;
  writeFileSync(join(root, "proc/meminfo"), `MemTotal: ${kibibytes} kB\nMemAvailable: ${kibibytes} kB\n`);
  return root;
}

readOnce();
const reading = readOnce();
const adapter = await step(["--steps", values.steps, "--lora", "8"]);
if (typeof adapter === "string") throw new Error(adapter);
const roofline = await measureRoofline();
const root = systemWith(Number(values.limit));
const refusal = await step(["--steps", "1"], { ASTRA_SYSTEM_ROOT: root });
rmSync(root, { recursive: true });
if (typeof refusal !== "string") throw new Error("training all weights was not refused");

const parameters = bytes / 2;
// Each decoding step reads all weights; prompts and updates are bound by products: 2 operations for each weight and token
// read, as many again for the gradients of inputs. A frozen weight has no gradient of its own.
const decoding = (2 * DEPTH * NEW_TOKENS * bytes) / roofline.read;
const boundOf = ({ record }: Outcome["steps"][number]) => {
  const read =
    record["tokens/tester/read"]! + record["tokens/target/read"]! + record["tokens/baseline/read"]!;
  const trained = record["tokens/tester/trained"]!;
  return {
    rollout: decoding + (2 * parameters * read) / roofline.gemm.bfloat16,
    update: (4 * parameters * trained) / roofline.gemm.bfloat16,
  };
};
const later = adapter.steps.slice(1);
const of = (value: (one: Outcome["steps"][number]) => number) => median(later.map(value));
const row = (name: string, seconds: number, bound: number) =>
  `| ${name} | ${seconds.toFixed(1)} s | ${bound.toFixed(1)} s | ${((100 * bound) / seconds).toFixed(0)} % |`;
const text = `A Llama-shaped checkpoint of ${(parameters / 1e9).toFixed(2)} billion random parameters in bfloat16, an adapter of rank 8 on all
projections, 2 episodes of width 2 and depth ${DEPTH}, medians of ${later.length} steps after the first; load average ${load.toFixed(1)} at the start.

| part | time | bound | of its bound |
| --- | --- | --- | --- |
${row(
  "rollouts",
  of((one) => one.rollout_s),
  of((one) => boundOf(one).rollout),
)}
${row(
  "update",
  of((one) => one.update_s),
  of((one) => boundOf(one).update),
)}

Greatest resident memory ${(adapter.peakResidentBytes / 2 ** 30).toFixed(2)} GiB (the weights are ${(bytes / 2 ** 30).toFixed(2)}). Loading tester, target and baseline, which
are one checkpoint, took ${adapter.loadSeconds.toFixed(1)} s; one thread reads the file from the system's cache in ${reading.toFixed(1)} s.

Training all weights where ${values.limit} GiB are left:

> ${refusal}
`;
process.stdout.write(text);
if (values.output !== undefined) writeFileSync(values.output, text);
