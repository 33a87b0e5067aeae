/**
 * Performance of `astra-rl view` with a long run: 1,000 steps and 100,000 nodes. Prints first paint, an interaction, a
 * search, and the server's memory. Needs a Chromium on the path or in ASTRA_TEST_BROWSER.
 *
 *     npm run bench:view -- [--steps 1000] [--nodes 100000]
 */
import { spawn } from "node:child_process";
import { createWriteStream, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { summarize } from "astra-rl";
import { chromium } from "playwright-core";
import { median } from "./measure.js";

const { values } = parseArgs({
  options: { steps: { type: "string", default: "1000" }, nodes: { type: "string", default: "100000" } },
});
const [steps, nodes] = [Number(values.steps), Number(values.nodes)];
const folder = mkdtempSync(join(tmpdir(), "viewing-"));
const program = fileURLToPath(new URL("../packages/astra-rl/bin/astra-rl.js", import.meta.url));

/** Trees of width 2 and depth 3, as in the demo. */
const PER_GRAPH = 14;
const WORDS =
  "the house garden river was old cold bright nobody asked whether it could ever be said again".split(" ");
let drawn = 0;
function sentence(): string {
  // A linear congruential generator: the texts differ, but are the same in each run of this benchmark.
  const words = Array.from(
    { length: 10 },
    () => WORDS[(drawn = (drawn * 1103515245 + 12345) % 2147483648) % WORDS.length],
  );
  return `${words.join(" ")}.`;
}

interface Turn {
  context: string;
  probe: string;
  response: string;
  reward: number;
  children: Turn[];
  [other: string]: unknown;
}

function turns(context: string, depth: number): Turn[] {
  if (depth === 0) return [];
  return [0, 1].map((): Turn => {
    const [probe, response] = [sentence(), sentence()];
    return {
      context,
      probe,
      response,
      reward: 0.123456,
      children: turns(`${context}${probe}\n${response}\n`, depth - 1),
      scores: { probe: 0.1, response: 0.7 },
      terms: { harm: 0.7, nll: 0.4 },
      likelihood: { nll: 0.4, total: -4, tokens: 10 },
      credit: 0.5,
    };
  });
}

async function writeRun(): Promise<void> {
  const run = join(folder, "long");
  mkdirSync(run);
  writeFileSync(join(run, "config.resolved.yaml"), `seed: 1\ntraining: { trainingSteps: ${steps} }\n`);
  const keys = Array.from({ length: 60 }, (_, at) => `other/figure_${at}`);
  const metrics = createWriteStream(join(run, "metrics.jsonl"));
  for (let step = 1; step <= steps; step++) {
    const others = Object.fromEntries(keys.map((key) => [key, Math.sin(step)]));
    metrics.write(
      `${JSON.stringify({ step, loss: 0.7, "reward/mean": step / steps, ...others, "success/harmless_probe_rate": step / steps, "success/rate": step / steps, "reward/term/nll": 0.5, version: 1 })}\n`,
    );
  }
  const graphs = createWriteStream(join(run, "graphs.jsonl"));
  const count = Math.ceil(nodes / PER_GRAPH);
  for (let episode = 0; episode < count; episode++) {
    const context = sentence();
    const step = 1 + Math.floor((episode * steps) / count);
    const line = JSON.stringify({ context, children: turns(context, 3), seed: 1, episode, version: 1, step });
    if (!graphs.write(`${line}\n`)) await once(graphs, "drain");
  }
  const evaluations = createWriteStream(join(run, "evaluations.jsonl"));
  for (let step = 10; step <= steps; step += 10) evaluations.write(`${JSON.stringify(evaluation(step))}\n`);
  for (const stream of [metrics, graphs, evaluations]) {
    stream.end();
    await once(stream, "close");
  }
}

/** 48 rollouts of four turns. */
function evaluation(step: number): object {
  const interval = { lower: 0.4, upper: 0.6, confidence: 0.95, method: "wilson" };
  const details = Array.from({ length: 48 }, () => ({
    overall: {
      num_turns: 4,
      num_errors: 0,
      mean_reward: 0.1,
      mean_probe_harm: 0.1,
      mean_response_harm: 0.4,
      first_harmful_probe_turn: null,
      first_harmful_response_turn: 2,
      harmless_probe_success: true,
    },
    per_turn: [1, 2, 3, 4].map((turn) => ({
      turn,
      reward: 0.1,
      probe_harm: 0.1,
      response_harm: turn === 2 ? 0.9 : 0.1,
      context: sentence(),
      probe: sentence(),
      response: sentence(),
      probe_nll: 0.5,
      probe_tokens: 10,
      error: null,
    })),
  }));
  return {
    step,
    summary: {
      ...summarize([]),
      doubts: [],
      n_rollouts: 48,
      n_scored: 48,
      n_errors: 0,
      n_successes: 24,
      mean_reward: 0.1,
      mean_probe_harm: 0.1,
      mean_response_harm: 0.4,
      harmful_probe_rollout_rate: 0,
      success_rate: 0.5,
      success_rate_interval: interval,
      success_rate_bounds: { lower: 0.5, upper: 0.5 },
      n_harmless_probe_scored: 48,
      n_harmless_probe_successes: 24,
      harmless_probe_success_rate: 0.5,
      harmless_probe_success_rate_interval: interval,
      mean_probe_nll: 0.5,
      harm_threshold: 0.5,
    },
    details,
    version: 2,
  };
}

await writeRun();
const executablePath = process.env["ASTRA_TEST_BROWSER"] ?? "/usr/bin/chromium-headless-shell";
const server = spawn(process.execPath, [program, "view", folder, "--port", "0"], {
  stdio: ["ignore", "pipe", "inherit"],
});
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  const peak = () =>
    Number(/VmHWM:\s+(\d+) kB/u.exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))![1]) / 1024;
  const [first] = (await once(server.stdout, "data")) as [Buffer];
  const url = first.toString().trim();
  const idle = peak();
  const paints: number[] = [];
  const complete: number[] = [];
  for (let repeat = 0; repeat < 5; repeat++) {
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    await page.goto(url);
    await page.locator("figure.chart").first().waitFor();
    paints.push(
      await page.evaluate<number>("performance.getEntriesByName('first-contentful-paint')[0].startTime"),
    );
    complete.push(await page.evaluate<number>("performance.now()"));
    await page.close();
  }
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await page.goto(`${url}/#run=long`);
  await page.getByRole("treeitem").first().waitFor();
  /** Milliseconds in the page from an event until the next frame is painted. */
  const interaction = (script: string, until: string) =>
    page.evaluate<number>(`new Promise((done) => {
      const start = performance.now();
      ${script};
      const look = () => (${until}) ? requestAnimationFrame(() => setTimeout(() => done(performance.now() - start))) : setTimeout(look, 1);
      look();
    })`);
  const nexts: number[] = [];
  const axes: number[] = [];
  console.error("MEM", peak());
  for (let repeat = 0; repeat < 9; repeat++) {
    const before = await page.locator('[role="treeitem"]').first().innerText();
    nexts.push(
      await interaction(
        "[...document.querySelectorAll('button')].find((button) => button.textContent === 'Previous').click()",
        `(document.querySelector('[role="treeitem"]')?.innerText ?? ${JSON.stringify(before)}) !== ${JSON.stringify(before)}`,
      ),
    );
    const wanted = ["time", "tokens", "step"][repeat % 3]!;
    axes.push(
      await interaction(
        `const choice = [...document.querySelectorAll('select')].find((select) => select.innerText.includes('training step')); choice.value = '${wanted}'; choice.dispatchEvent(new Event('change', { bubbles: true }))`,
        "true",
      ),
    );
  }
  const searches: number[] = [];
  for (const text of ["river garden", "nobody", "whether it could", "not there at all", "cold bright old"]) {
    const start = performance.now();
    await (await fetch(`${url}/api/search?run=long&text=${encodeURIComponent(text)}`)).json();
    searches.push(performance.now() - start);
  }
  const memory =
    Number(/VmHWM:\s+(\d+) kB/u.exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))![1]) / 1024;
  const line = (name: string, value: number, unit: string, bound: number) =>
    console.log(`${name.padEnd(34)} ${value.toFixed(0).padStart(6)} ${unit}   (at most ${bound})`);
  console.log(`${steps} steps, ${nodes} nodes; medians, and the server's peak resident memory`);
  line("first paint", median(paints), "ms ", 1000);
  line("curves drawn", median(complete), "ms ", 1000);
  line("another tree", median(nexts), "ms ", 100);
  line("another axis", median(axes), "ms ", 100);
  line("search", median(searches), "ms ", 200);
  line("server memory", memory, "MiB", 300);
  console.log(`server memory before any page ${idle.toFixed(0)} MiB`);
} finally {
  await browser.close();
  server.kill();
  rmSync(folder, { recursive: true, force: true });
}
