/**
 * What each algorithm finds on models of one's own, beside the untrained tester and a search with as many answers of the
 * target: a row per seed, and their mean. What is finished is not computed again, so that an interrupted comparison goes on.
 *
 *     npm run bench:algorithms -- run.yaml --output DIR [--seeds 1,2,3] [--algorithms dpo,ppo] [--set KEY=VALUE]
 *
 * The configuration names models, prompts with a test set, and a scorer. Evaluations during training, which use answers that
 * a search of equal cost would have, are off.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { fileURLToPath } from "node:url";

const ALGORITHMS = "dpo,ipo,orpo,reinforce,a2c,ppo,rloo,grpo";
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    output: { type: "string" },
    seeds: { type: "string", default: "1,2,3" },
    algorithms: { type: "string", default: ALGORITHMS },
    set: { type: "string", multiple: true, default: [] },
  },
});
const [configuration] = positionals;
if (configuration === undefined || values.output === undefined) {
  console.error(
    "usage: algorithms.ts CONFIG --output DIR [--seeds 1,2,3] [--algorithms dpo,ppo] [--set KEY=VALUE]",
  );
  process.exit(2);
}
const output = values.output;
const seeds = values.seeds.split(",").map(Number);
mkdirSync(output, { recursive: true });

// Rows of other settings would be shown as if they were of these.
const described = JSON.stringify([readFileSync(configuration, "utf8"), values.set]);
const description = join(output, "settings.json");
if (existsSync(description) && readFileSync(description, "utf8") !== described) {
  console.error(
    `${output} has results of another configuration or other --set; give a new folder as --output`,
  );
  process.exit(2);
}
writeFileSync(description, described);

/** The fields of an evaluation's record that are compared. */
interface Summary {
  harmless_probe_success_rate: number;
  mean_probe_nll: number;
  n_distinct_probes: number;
  diversity: { cluster_success_rate: number };
}

function astraRl(...given: readonly string[]): void {
  const command = fileURLToPath(new URL("../packages/astra-rl/bin/astra-rl.js", import.meta.url));
  const { status } = spawnSync(process.execPath, [command, ...given], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  // 3: the result is not conclusive, which is a result.
  if (status === 0 || status === 3) return;
  console.error(`astra-rl ${given.join(" ")}: exit code ${status}; what is finished stays in ${output}`);
  process.exit(status ?? 1);
}

const settings = (seed: number, ...more: readonly string[]) =>
  ["training.evaluateEvery=0", "training.keepGraphs=false", ...values.set, `seed=${seed}`, ...more].flatMap(
    (each) => ["--set", each],
  );

interface Evaluation {
  summary: Summary;
  measured: { search?: { queries: number } };
}

/** The record of that name, made first if it is missing. */
function record(name: string, make: (path: string) => void): Evaluation {
  const path = join(output, `${name}.json`);
  if (!existsSync(path)) {
    const unfinished = join(output, `${name}.unfinished.json`);
    make(unfinished);
    renameSync(unfinished, path);
  }
  return JSON.parse(readFileSync(path, "utf8")) as Evaluation;
}

/** Answers of the target in a training. */
function answersOf(runFolder: string): number {
  const lines = readFileSync(join(runFolder, "metrics.jsonl"), "utf8").trim().split("\n");
  return lines.reduce(
    (sum, line) => sum + ((JSON.parse(line) as { "turns/done"?: number })["turns/done"] ?? 0),
    0,
  );
}

interface Row {
  method: string;
  seed: number;
  answers: number;
  summary: Summary;
}

function rowsOf(seed: number): Row[] {
  const { summary: untrained } = record(`untrained-${seed}`, (path) => {
    astraRl("eval", configuration!, ...settings(seed), "--output", path);
  });
  const trained = values.algorithms.split(",").map((algorithm): Row => {
    const name = `${algorithm}-${seed}`;
    const runFolder = join(output, "runs", name);
    const given = settings(seed, `algorithm.type=${algorithm}`);
    const { summary } = record(name, (path) => {
      const resume = existsSync(join(runFolder, "checkpoints")) ? ["--resume"] : [];
      astraRl("train", configuration!, ...given, "--run-dir", runFolder, ...resume);
      const tester = join(runFolder, "checkpoints", "last");
      astraRl("eval", configuration!, ...given, "--tester", tester, "--output", path);
    });
    return { method: algorithm, seed, answers: answersOf(runFolder), summary };
  });
  const queries = Math.max(...trained.map(({ answers }) => answers));
  const searched = record(`search-${seed}`, (path) => {
    astraRl("search", configuration!, ...settings(seed), "--queries", String(queries), "--output", path);
  });
  return [
    { method: "untrained", seed, answers: 0, summary: untrained },
    // Of an earlier comparison it may have had fewer.
    { method: "search", seed, answers: searched.measured.search!.queries, summary: searched.summary },
    ...trained,
  ];
}

/** The compared figures of one row, and how they are printed. */
const FIGURES: readonly (readonly [
  name: string,
  of: (summary: Summary) => number,
  print: (value: number) => string,
])[] = [
  ["success, harmless probes", (each) => 100 * each.harmless_probe_success_rate, percent],
  ["probe NLL", (each) => each.mean_probe_nll, (value) => value.toFixed(2)],
  ["distinct probes", (each) => each.n_distinct_probes, (value) => Math.round(value).toLocaleString("en-US")],
  ["success, each cluster once", (each) => 100 * each.diversity.cluster_success_rate, percent],
];

function percent(value: number): string {
  return `${value.toFixed(1)} %`;
}

const rows: Row[] = [];
for (const seed of seeds) {
  rows.push(...rowsOf(seed));
  console.error(`seed ${seed}: done`);
}
const methods = new Set(rows.map(({ method }) => method));
const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
const table = [
  line(["method", "answers", "seed", ...FIGURES.map(([name]) => name)]),
  line(["---", "---:", "---:", ...FIGURES.map(() => "---:")]),
];
for (const method of methods) {
  const own = rows.filter((row) => row.method === method);
  const means = FIGURES.map(([, of, print]) =>
    print(own.reduce((sum, { summary }) => sum + of(summary), 0) / own.length),
  );
  const answers = own[0]!.answers.toLocaleString("en-US");
  table.push(line([method, answers, "mean", ...means]));
  for (const { seed, summary } of own) {
    table.push(line(["", "", String(seed), ...FIGURES.map(([, of, print]) => print(of(summary)))]));
  }
}
writeFileSync(join(output, "table.md"), `${table.join("\n")}\n`);
console.log(table.join("\n"));
