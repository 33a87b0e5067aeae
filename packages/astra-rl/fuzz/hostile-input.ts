// Generated configurations, run folders, scorers and locks: each must be accepted, or refused with a message, in time.
//
//   node --import tsx packages/astra-rl/fuzz/hostile-input.ts --cases 2500 --seed 1 [--family locks] [--show]
//
// `--cases N --seed S` runs seeds S to S + N − 1 of each family, in a separate process: a crash or a hang is reported
// with its seed, and `--cases 1 --seed X --family NAME --show` repeats one.
import { fork, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { explain } from "@astra-rl/assembly/program";
import { parseConfiguration, parseOverride } from "@astra-rl/assembly";
import { Scorer, type ScoreOutcome } from "@astra-rl/method";
import { checkNewRunFolder, LOCK_FILE, RunLock, takeRunFolder } from "@astra-rl/records";
import { readReport } from "@astra-rl/report";
import { BatchedScorer, MaxScorer, WeightedScorer } from "@astra-rl/scorers";
import { Random } from "../../lm/fuzz/random.js";

/** Seconds of the clock that a case may take. */
const LIMIT = 20;

const { values } = parseArgs({
  options: {
    cases: { type: "string", default: "100" },
    seed: { type: "string", default: "1" },
    family: { type: "string" },
    show: { type: "boolean", default: false },
    child: { type: "boolean", default: false },
  },
});

/** The outcome of a case: "taken", or the message of the refusal. */
type Family = (random: Random, folder: string) => Promise<void> | void;

const SCALARS = [
  "1",
  "-1",
  "0.5",
  "1e309",
  ".nan",
  "true",
  "null",
  '""',
  "'\u0000'",
  "\u202Etext",
  "[]",
  "{}",
  "[1, [2, [3]]]",
  "*nobody",
  "&a x",
  "*a",
  "!!binary aGk=",
  "!!js/function x",
  "'((' ",
  "embedded",
  "embedded:chatter",
  "2020-01-01",
  "0x1F",
  '"\\e[31m"',
  "x".repeat(3000),
];
const KEYS = [
  "models",
  "tester",
  "target",
  "otherTargets",
  "scorer",
  "type",
  "entries",
  "pattern",
  "term",
  "deadline",
  "cache",
  "sampler",
  "width",
  "depth",
  "generation",
  "maxNewTokens",
  "minNewTokens",
  "training",
  "trainingSteps",
  "reward",
  "terms",
  "weight",
  "algorithm",
  "evaluation",
  "prompts",
  "train",
  "seed",
  "logging",
  "<<",
  "__proto__",
  "constructor",
  "? [a]",
];
const TYPES = [
  "keyword",
  "embedded",
  "dpo",
  "ppo",
  "harm",
  "nll",
  "weighted",
  "max",
  "few-shot",
  "archive",
  "jsonl",
  "no",
];

function yaml(random: Random, level = 0): string {
  const indent = "  ".repeat(level);
  const gap = random.once(60) ? "\t" : indent;
  const lines = Array.from({ length: 1 + random.below(5) }, () => {
    const key = random.pick(KEYS);
    if (key === "type") return `${gap}type: ${random.pick(TYPES)}`;
    if (level < 4 && random.once(2)) return `${gap}${key}:\n${yaml(random, level + 1)}`;
    if (level < 4 && random.once(4))
      return `${gap}${key}:\n${indent}  - ${yaml(random, level + 2).trimStart()}`;
    return `${gap}${key}: ${random.pick(SCALARS)}`;
  });
  return lines.join("\n");
}

const GOOD = `models: {tester: embedded:chatter, target: embedded:chatter}
scorer: {type: keyword, entries: [{term: a}, {pattern: "b+"}]}
sampler: {width: 2, depth: 1}
generation: {tester: {maxNewTokens: 3}, target: {maxNewTokens: 3}}
training: {trainingSteps: 1, evaluateEvery: 0}
`;

/** A text with a few of its parts removed, doubled, or moved. */
function mangled(random: Random, text: string): string {
  let current = text;
  for (let change = random.below(6); change > 0; change--) {
    const [from, length] = [random.below(current.length + 1), random.below(20)];
    const part = current.slice(from, from + length);
    const put = random.pick([
      "",
      part + part,
      random.pick(SCALARS),
      "\n",
      "\t",
      "- ",
      ": ",
      "{",
      "]",
      "&a ",
      "*a",
    ]);
    current = current.slice(0, from) + put + current.slice(from + length);
  }
  return current;
}

const configurations: Family = async (random, folder) => {
  const text = random.once(3)
    ? yaml(random)
    : random.once(40)
      ? Array.from(
          { length: random.below(30_000) },
          (_, index) => `k${index}: ${random.pick(["1", `&a${index} 1`])}`,
        ).join("\n")
      : mangled(random, GOOD);
  const set = random.once(4) ? [`${random.pick(KEYS)}.${random.pick(KEYS)}=${random.pick(SCALARS)}`] : [];
  await parseConfiguration(text, join(folder, "run.yaml"), { overrides: set.map(parseOverride) });
};

const METRICS = '{"step":1,"loss":0.5,"reward/mean":0.1,"turns/done":4,"turns/failed":0,"version":1}\n';
const GRAPH =
  '{"context":"x","children":[{"context":"x","probe":"p","response":"r","reward":0,"children":[]}],"seed":0,"episode":0,"version":1,"step":1}\n';
const SUMMARY =
  '"summary":{"n_rollouts":0,"n_scored":0,"n_errors":0,"n_successes":0,"mean_reward":null,"mean_probe_harm":null,"mean_response_harm":null,' +
  '"harmful_probe_rollout_rate":null,"success_rate":null,"success_rate_interval":null,"success_rate_bounds":null,"mean_probe_nll":null,"harm_threshold":0.5}';
const FILES: Readonly<Record<string, string>> = {
  "metrics.jsonl": METRICS.repeat(3),
  "graphs.jsonl": GRAPH.repeat(3),
  "evaluations.jsonl": `{"step":1,${SUMMARY},"details":[],"version":2}\n`,
  "evaluation.json": `{${SUMMARY},"details":[],"version":2}`,
  "config.resolved.yaml": GOOD,
  "run.json": "{}",
  "run.lock": "{}",
};

/** Puts something in place of a file: another text, a link, a pipe, a folder, or nothing. */
function put(random: Random, path: string, text: string): void {
  switch (random.below(9)) {
    case 0:
      return;
    case 1:
      mkdirSync(path);
      return;
    case 2:
      symlinkSync(random.pick(["nowhere", ".", "metrics.jsonl", "/dev/null"]), path);
      return;
    case 3:
      spawnSync("mkfifo", [path]);
      return;
    case 4:
      writeFileSync(
        path,
        random.pick([
          "",
          "\n\n",
          "\0\0\0",
          "[".repeat(30_000),
          '{"children":['.repeat(20_000),
          "null",
          "\uFEFF{}",
        ]),
      );
      return;
    case 5:
      writeFileSync(path, mangled(random, text));
      return;
    default:
      writeFileSync(path, text);
  }
}

const folders: Family = (random, folder) => {
  for (const [name, text] of Object.entries(FILES)) put(random, join(folder, name), text);
  if (!random.once(4)) {
    mkdirSync(join(folder, "checkpoints"));
    if (random.once(3))
      put(random, join(folder, "checkpoints", random.pick(["last", ".last.old", "step-3", "x"])), "");
  }
  const tries = [
    () => readReport([folder]),
    () => checkNewRunFolder(folder),
    () => takeRunFolder(folder).release(),
  ];
  random.pick(tries)();
};

/** Scores of every JavaScript type. */
function answer(random: Random, texts: readonly string[]): unknown {
  const value = () =>
    random.pick<unknown>([
      0,
      1,
      0.5,
      -1,
      2,
      NaN,
      Infinity,
      "0.5",
      "",
      null,
      undefined,
      true,
      10n,
      [],
      {},
      Symbol("s"),
      () => 1,
    ]);
  const outcome = (): unknown =>
    random.pick<() => unknown>([
      () => ({ score: 0.5 }),
      () => ({ score: 0.5, labels: { a: value() } }),
      () => ({ score: value() }),
      () => ({ failure: { stage: "scorer", message: "no", attempts: 1 } }),
      () => ({ failure: value() }),
      () => Object.create(null),
      () => Object.freeze({ score: 1 }),
      value,
    ])();
  const list = texts.map(outcome);
  return random.pick<() => unknown>([
    () => texts.map(() => ({ score: 0.5 })),
    () => list,
    () => list.slice(1),
    () => [...list, ...list],
    () => {
      const sparse: unknown[] = [];
      sparse.length = texts.length;
      if (random.once(2)) sparse[0] = { score: 0.5 };
      return sparse;
    },
    () => Object.assign({ length: texts.length }, list),
    () => new Set(list),
    () => new Float32Array(texts.length),
    value,
  ])();
}

class Hostile extends Scorer {
  readonly name = "hostile";
  override deadline: number | null = 5;

  constructor(readonly random: Random) {
    super();
  }

  // Not async, so that what is thrown is thrown at once.
  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    const { random } = this;
    if (random.once(8))
      throw random.pick<unknown>([new Error("down"), "text", null, undefined, { message: 5 }]);
    if (random.once(8)) return new Promise(() => {});
    if (random.once(8))
      return Promise.reject(random.pick<Error>([new Error("503"), new TypeError("x"), null as never]));
    const given = answer(random, texts) as ScoreOutcome[];
    return random.once(4) ? (given as unknown as Promise<ScoreOutcome[]>) : Promise.resolve(given);
  }
}

const scorers: Family = async (random) => {
  const own = new Hostile(random);
  const scorer = random.pick<() => Scorer>([
    () => own,
    () => new BatchedScorer(own, { cacheSize: 4 }),
    () => new MaxScorer([own, new Hostile(random)]),
    () => new WeightedScorer([{ scorer: own, weight: 1 }]),
  ])();
  const texts = Array.from({ length: random.below(5) }, (_, index) => `text ${index % 3}`);
  const outcomes = await scorer.scoreAndValidate(texts, { attempts: 1 + random.below(2) });
  if (outcomes.length !== texts.length)
    throw new Error(`${outcomes.length} outcomes of ${texts.length} texts`);
  for (const { failure, score } of outcomes) {
    if (failure === undefined && !(typeof score === "number" && score >= 0 && score <= 1)) {
      throw new Error(`took ${String(score)} for a score`);
    }
  }
};

const locks: Family = (random, folder) => {
  const path = join(folder, LOCK_FILE);
  const holder = {
    pid: random.pick<unknown>([process.pid, 1, 999_999_999, -1, 0, 1.5, "7", null, 2 ** 40]),
    host: random.pick<unknown>([hostname(), "elsewhere", "\u001B[31m", 5, null]),
    began: random.pick<unknown>([null, "another boot 17", 5]),
    among: random.pick<unknown>([undefined, null, "another boot pid:[1]", 7]),
  };
  const text = JSON.stringify(holder);
  put(random, path, random.once(3) ? text.slice(0, random.below(text.length)) : text);
  if (random.once(2)) {
    const then = new Date(Date.now() - random.pick([0, 5, 30, 59, 70, 1e6]) * 1000);
    try {
      utimesSync(path, then, then);
    } catch {
      // Nothing is there, or a link that leads nowhere.
    }
  }
  const lock = RunLock.take(folder);
  lock.check();
  lock.release();
  const left = readdirSync(folder);
  if (left.length > 0) throw new Error(`left ${left.join(", ")}`);
};

const FAMILIES: Readonly<Record<string, Family>> = { configurations, folders, scorers, locks };

/** null: it was accepted, or refused with a message. */
async function failureOf(name: string, seed: number): Promise<string | null> {
  const folder = mkdtempSync(join(tmpdir(), "astra-rl-hostile-"));
  try {
    await FAMILIES[name]!(new Random(seed), folder);
    if (values.show) process.stdout.write("taken\n");
    return null;
  } catch (error) {
    const { line } = explain(error);
    if (values.show) process.stdout.write(`${line}\n${error instanceof Error ? error.stack : ""}\n`);
    return line.startsWith("internal:") ? line : null;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function child(name: string, first: number, end: number): Promise<void> {
  for (let seed = first; seed < end; seed++) {
    process.send!({ seed });
    const why = await failureOf(name, seed);
    if (why !== null) process.send!({ seed, why });
  }
  process.disconnect();
}

/** Runs the cases of a family, with another process behind each crash and hang. */
async function parent(name: string, first: number, end: number): Promise<string[]> {
  const failures: string[] = [];
  const at = { next: first };
  while (at.next < end) {
    const began = at.next;
    const args = ["--child", "--family", name, "--seed", String(at.next), "--cases", String(end - at.next)];
    const worker = fork(fileURLToPath(import.meta.url), args, { execArgv: ["--import", "tsx"] });
    const code = await new Promise<number | null | "hang">((resolve) => {
      let timer = setTimeout(() => {}, 0);
      const watch = (limit: number) => {
        clearTimeout(timer);
        timer = setTimeout(() => {
          worker.kill("SIGKILL");
          resolve("hang");
        }, limit * 1000);
      };
      watch(120);
      worker.on("message", ({ seed, why }: { seed: number; why?: string }) => {
        at.next = seed + 1;
        if (why !== undefined) failures.push(`${name} --seed ${seed}: ${why}`);
        watch(LIMIT);
      });
      worker.on("close", (ended) => {
        clearTimeout(timer);
        resolve(ended);
      });
    });
    if (code === 0 && at.next >= end) break;
    failures.push(
      `${name} --seed ${at.next - 1}: ${code === "hang" ? `took over ${LIMIT} s` : `ended with ${code}`}`,
    );
    if (at.next === began) break;
  }
  return failures;
}

const [first, cases] = [Number(values.seed), Number(values.cases)];
if (values.child) await child(values.family!, first, first + cases);
else if (values.show) process.exitCode = (await failureOf(values.family!, first)) === null ? 0 : 1;
else {
  const names = values.family === undefined ? Object.keys(FAMILIES) : [values.family];
  const began = performance.now();
  const failures: string[] = [];
  for (const name of names) failures.push(...(await parent(name, first, first + cases)));
  for (const failure of failures) process.stdout.write(`${failure}\n`);
  const seconds = Math.round((performance.now() - began) / 1000);
  process.stdout.write(
    `hostile-input: ${names.length} × ${cases} cases, ${failures.length} failures, ${seconds} s\n`,
  );
  process.exitCode = failures.length === 0 ? 0 : 1;
}
