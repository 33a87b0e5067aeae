/**
 * Runs the demo over seeds and algorithms, and writes docs/demo-results.md:
 *
 *   npx tsx packages/world/src/demo-results.ts [--runs runs/demo-results] [--seeds 1,2,3,4,5]
 *
 * A run that is finished already (its folder `<algorithm>-<seed>` holds comparison.json) is not run again. Needs the
 * built packages (npm run setup).
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const COMMAND = "node packages/astra-rl/bin/astra-rl.js demo";
const ALGORITHMS = ["dpo", "ipo"] as const;
/** What every run must keep. */
const LIMITS = { before: 0.15, after: 0.6, nll: 1, seconds: 180 };

interface Comparison {
  readonly n_pairs: number;
  readonly before: number;
  readonly after: number;
  readonly difference_interval: { readonly lower: number; readonly upper: number };
  readonly p_value: number;
  readonly probe_nll_difference: number;
}

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "runs/demo-results" },
    seeds: { type: "string", default: "1,2,3,4,5" },
  },
});
const seeds = values.seeds.split(",");
mkdirSync(values.runs, { recursive: true });

/** Runs the demo where that has not been done, and reads what it left. */
function finishedRun(algorithm: string, seed: string) {
  const folder = join(values.runs, `${algorithm}-${seed}`);
  const timing = `${folder}.seconds`;
  if (!existsSync(join(folder, "comparison.json"))) {
    const started = performance.now();
    const options = ["demo", "--seed", seed, "--algorithm", algorithm, "--run-dir", folder];
    const { status } = spawnSync(
      process.execPath,
      [join(ROOT, "packages/astra-rl/bin/astra-rl.js"), ...options],
      {
        stdio: ["ignore", "ignore", "inherit"],
      },
    );
    if (status !== 0)
      throw new Error(`the demo with ${algorithm} and seed ${seed} ended with status ${status}`);
    writeFileSync(timing, `${((performance.now() - started) / 1000).toFixed(0)}\n`);
  }
  const comparison = JSON.parse(readFileSync(join(folder, "comparison.json"), "utf8")) as Comparison;
  const seconds = existsSync(timing) ? Number(readFileSync(timing, "utf8")) : null;
  return { comparison, seconds, report: readFileSync(join(folder, "report.txt"), "utf8").trimEnd() };
}

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
const signed = (value: number, digits = 2) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
const points = (share: number) => signed(100 * share, 1);

const sections: string[] = [];
for (const algorithm of ALGORITHMS) {
  const runs = seeds.map((seed) => ({ seed, ...finishedRun(algorithm, seed) }));
  const rows = runs.map(({ seed, comparison, seconds }) => {
    const {
      before,
      after,
      difference_interval: interval,
      n_pairs: n,
      p_value: p,
      probe_nll_difference: nll,
    } = comparison;
    const kept =
      before <= LIMITS.before &&
      after >= LIMITS.after &&
      nll <= LIMITS.nll &&
      (seconds ?? 0) <= LIMITS.seconds;
    const range = `${points(interval.lower)} to ${points(interval.upper)}`;
    const cells = [
      seed,
      n,
      percent(before),
      percent(after),
      range,
      p.toExponential(0),
      signed(nll),
      seconds ?? "—",
    ];
    return `| ${[...cells, kept ? "yes" : "**no**"].join(" | ")} |`;
  });
  sections.push(
    `## ${algorithm.toUpperCase()}`,
    "",
    `\`${COMMAND} --algorithm ${algorithm} --seed N\``,
    "",
    "| seed | n | before | after | difference, points (95 %) | p (McNemar) | probe NLL, nats a token | seconds | as promised |",
    "|---|---|---|---|---|---|---|---|---|",
    ...rows,
    "",
    `What seed ${seeds[0]} printed:`,
    "",
    "```text",
    runs[0]!.report,
    "```",
    "",
  );
}
const date = new Date().toISOString().slice(0, 10);
const text = [
  "# What the demo reaches",
  "",
  `Success is a rollout of three turns, on a prompt that training never saw, in which any response scores at least 0.5. Promised of every run: at most ${percent(LIMITS.before)} before training, at least ${percent(LIMITS.after)} after it, probes at most ${LIMITS.nll} nat a token less likely under the target than before, and at most ${LIMITS.seconds} seconds.`,
  "",
  `Made on ${date} on ${cpus().length} cores (${cpus()[0]?.model.trim() ?? "unknown"}) by \`npx tsx packages/world/src/demo-results.ts\`. Times are wall-clock times. What the models and the prompts are: [the world](../packages/astra-rl/world/README.md).`,
  "",
  ...sections,
].join("\n");
writeFileSync(join(ROOT, "docs/demo-results.md"), text);
