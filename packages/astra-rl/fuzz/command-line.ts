// Generated command lines, files and configurations: every command must terminate in time, with one of the documented
// exit codes, and without internal details in messages.
//
//   node --import tsx packages/astra-rl/fuzz/command-line.ts --cases 200 --seed 1 [--command train]
//
// `--cases N --seed S` runs seeds S to S + N − 1 of each command; `--cases 1 --seed X --command NAME --show` repeats one.
import { fork } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { configurationJsonSchema } from "@astra-rl/assembly";
import { formsOf, type JsonSchema } from "@astra-rl/base";
import { COMMANDS, main } from "../src/main.js";
import { Random } from "../../lm/fuzz/random.js";

const CODES: readonly number[] = [0, 1, 2, 3, 130, 141];
/** CPU seconds that a case may take; wall-clock time is unreliable on a busy machine. */
const LIMIT = 20;
/** Wall-clock seconds for a case that waits forever; a starved process does not count. */
const LONGEST_SILENCE = 180;
/** Internal details that messages must not contain. */
const STACK = /^\s+at .+:\d+:\d+\)?$|internal:|FATAL ERROR|node:internal/mu;

interface Report {
  command: string;
  seed: number;
  code?: number;
  args?: readonly string[];
  why?: string;
}

const { values } = parseArgs({
  options: {
    cases: { type: "string", default: "200" },
    seed: { type: "string", default: "1" },
    command: { type: "string" },
    show: { type: "boolean", default: false },
    child: { type: "boolean", default: false },
  },
});

/** Small enough that a valid command ends in a second or two. */
const SMALL = `seed: 3
models: {tester: embedded:chatter, target: embedded:chatter}
prompts: {train: prompts.json, dev: prompts.json, test: prompts.json}
sampler: {width: 2, depth: 1}
generation: {tester: {maxNewTokens: 3}, target: {maxNewTokens: 3}}
training: {trainingSteps: 1, evaluateEvery: 0, numEpisodesPerExperience: 1}
`;

/** Keys of which a large value means a long run, not an error. */
const LONG = /(^|\.)(trainingSteps|rollouts|evaluationRollouts|maxTurns|rank|keepCheckpoints)$/u;

const NUMBERS = [
  "0",
  "1",
  "2",
  "-1",
  "1.5",
  "1e9",
  "1e308",
  "-0",
  "NaN",
  "Infinity",
  "0x10",
  "1e-300",
  "9007199254740993",
];
const SHORT_NUMBERS = ["0", "1", "2", "-1", "1.5", "NaN", "-Infinity", "two"];
const WORDS = [
  "",
  " ",
  "x",
  "null",
  "true",
  "[]",
  "{}",
  "[1, 2]",
  "{a: 1}",
  "[[[[",
  "a: b: c",
  "*x",
  "&a [*a]",
  "\u0000",
  "\u{1F600}",
  "é\u202e",
  "--help",
  "-",
  "a".repeat(5000),
  "embedded",
  "embedded:none",
  "owner/name",
  "../..",
  "(a+)+$",
  "${HOME}",
];
const PATHS = [
  "run.yaml",
  "minimal.yaml",
  "none.yaml",
  "empty.yaml",
  "latin1.yaml",
  "two.yaml",
  "deep.yaml",
  "deep.json",
  "list.yaml",
  "alias.yaml",
  "binary.bin",
  "folder",
  "loop",
  "prompts.json",
  "empty.json",
  "prompts.txt",
  "prompts.csv",
  "messages.jsonl",
  "texts.jsonl",
  "pairs.jsonl",
  "lines.jsonl",
  "half.jsonl",
  "words.json",
  "patterns.json",
  "latin1.json",
  "module.mjs",
  "module.mjs#scorer",
  "/dev/null",
  "/dev/full",
  "/proc/self/mem",
  "/",
  ".",
  "folder/new/deep.json",
  "broken",
  "out.json",
  "run",
  "run/checkpoints/last",
  "run/graphs.jsonl",
  "evaluation.json",
];

function makeFiles(): void {
  const write = (name: string, content: string | Buffer) => writeFileSync(name, content);
  write("run.yaml", SMALL);
  // The default number of steps takes minutes, and is not an error.
  write(
    "minimal.yaml",
    "models: {tester: embedded:chatter, target: embedded:chatter}\ntraining: {trainingSteps: 1}\n",
  );
  write("empty.yaml", "");
  write("latin1.yaml", Buffer.from("models: {tester: caf\u00e9, target: embedded:chatter}\n", "latin1"));
  write("two.yaml", `${SMALL}---\nseed: 4\n`);
  write("deep.yaml", `a: ${"[".repeat(20_000)}${"]".repeat(20_000)}\n`);
  write("deep.json", `${"[".repeat(20_000)}${"]".repeat(20_000)}`);
  write("list.yaml", "- 1\n- 2\n");
  write(
    "alias.yaml",
    `a: &a [x, x]\n${Array.from({ length: 12 }, (_, i) => `b${i}: &b${i} [${i === 0 ? "*a, *a" : `*b${i - 1}, *b${i - 1}`}]`).join("\n")}\n`,
  );
  write("binary.bin", Buffer.from(Array.from({ length: 4096 }, (_, i) => (i * 37) % 256)));
  mkdirSync("folder");
  symlinkSync("loop", "loop");
  write("prompts.json", '["Hello. ", "It is warm. "]');
  write("empty.json", "[]");
  write("prompts.txt", "one\n\ntwo\n");
  write("prompts.csv", 'prompt,note\n"a, b",c\nd,e\n');
  write("messages.jsonl", '{"messages": [{"role": "user", "content": "Hi"}]}\n');
  write("texts.jsonl", '{"text": "Get lost."}\n{"text": "It is warm."}\n');
  write("pairs.jsonl", '{"context": "a", "continuation": "b"}\n{"context": "b c", "continuation": " d"}\n');
  write("lines.jsonl", '{"prompt": "a"}\n{"prompt": "b"}\n');
  write("half.jsonl", '{"prompt": "a", "text": "b"}\n{"prompt": "\\ud800", "text": ""}\n');
  write("words.json", '["fool", {"pattern": "lo+st", "weight": 0.5}]');
  write("patterns.json", '[{"pattern": "(a+)+$"}, {"pattern": "(x*)*y"}]');
  write("latin1.json", Buffer.from('["f\u00fcr"]', "latin1"));
  write("module.mjs", "export const scorer = (text) => text.length % 2;\n");
  // A checkpoint whose parts are of no use.
  mkdirSync("broken");
  write("broken/config.json", '{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}');
  write("broken/tokenizer.json", "{}");
  write("broken/model.safetensors", Buffer.alloc(64));
}

let finished: string | undefined;

/** A folder with a finished run and an evaluation of it, created once per process. */
async function finishedRun(): Promise<string> {
  if (finished !== undefined) return finished;
  const home = process.cwd();
  const folder = mkdtempSync(join(tmpdir(), "astra-rl-fuzz-finished-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  process.chdir(folder);
  makeFiles();
  for (const args of [
    ["train", "run.yaml", "--run-dir", "run"],
    ["eval", "run.yaml", "--tester", "run/checkpoints/last", "--output", "evaluation.json"],
  ]) {
    // A single step may teach nothing, of which the verdict is refused.
    if (![0, 3].includes(await main(args, silent))) throw new Error(`${args.join(" ")} failed`);
  }
  process.chdir(home);
  finished = folder;
  return finished;
}

/** Deep enough for a nested scorer; nesting is unlimited. */
const DEEPEST = 4;

const ROOT = configurationJsonSchema();

/** Dotted paths of the keys that a configuration may have. */
function keysOf(schema: JsonSchema, path: readonly string[] = []): string[] {
  if (path.length === DEEPEST) return [];
  return formsOf(schema, ROOT).flatMap((form) =>
    Object.entries(form.properties ?? {}).flatMap(([name, child]) => [
      [...path, name].join("."),
      ...keysOf(child, [...path, name]),
    ]),
  );
}
const KEYS = [...new Set(keysOf(configurationJsonSchema()))];

function anyValue(random: Random, isLong: boolean): string {
  const kind = random.below(4);
  if (kind === 0) return random.pick(isLong ? SHORT_NUMBERS : NUMBERS);
  if (kind === 1) return random.pick(PATHS);
  if (kind === 2) return random.pick(WORDS);
  return String(random.below(4));
}

function override(random: Random): string[] {
  const key = !random.once(10)
    ? random.pick(KEYS)
    : `${random.pick(KEYS)}.${random.pick(["x", "", "__proto__", "[0]"])}`;
  const value = random.once(2) ? random.pick(["0", "1", "2", "true"]) : anyValue(random, LONG.test(key));
  return ["--set", random.once(20) ? key : `${key}=${value}`];
}

/** A mostly plausible command line with an error in it. */
function commandLine(command: string, random: Random): string[] {
  const { options, takesConfiguration, required } = COMMANDS_OF.get(command)!;
  const args = [command];
  if (takesConfiguration && !random.once(20)) {
    args.push(!random.once(3) ? "run.yaml" : random.pick(PATHS));
  }
  if (command === "report" && !random.once(20)) {
    for (let paths = 1 + random.below(2); paths > 0; paths -= 1) {
      args.push(random.once(4) ? random.pick(PATHS) : random.pick(["run", "evaluation.json"]));
    }
  }
  if (command === "init" && !random.once(5)) args.push(random.pick(["new.yaml", "-", ...PATHS]));
  if (command === "demo") {
    for (const set of [
      "training.trainingSteps=1",
      "training.evaluateEvery=0",
      "evaluation.rollouts=2",
      "training.numEpisodesPerExperience=2",
      "sampler.depth=1",
      "generation.tester.maxNewTokens=3",
      "generation.target.maxNewTokens=3",
    ])
      args.push("--set", set);
  }
  if (required.includes("--model") && !random.once(10)) {
    args.push("--model", !random.once(3) ? "embedded:chatter" : random.pick([...PATHS, ...WORDS]));
  }
  if (required.includes("--input") && !random.once(10)) {
    const good = {
      encode: "texts.jsonl",
      score: "texts.jsonl",
      generate: "lines.jsonl",
      logprobs: "pairs.jsonl",
    }[command];
    args.push("--input", !random.once(4) && good !== undefined ? good : random.pick(PATHS));
  }
  if (required.includes("--scorer") && !random.once(10)) {
    const good = [
      "embedded",
      "keyword:words.json",
      "./module.mjs#scorer",
      "{type: keyword, entries: [{term: a}]}",
    ];
    const bad = ["keyword:patterns.json", "keyword:none.json", "keyword:folder", "keyword:latin1.json"];
    args.push("--scorer", random.pick(random.once(3) ? [...bad, ...WORDS, ...PATHS] : good));
  }
  for (let more = random.below(4); more > 0; more -= 1) {
    const option = random.pick(options);
    if (option.name === "--set") args.push(...override(random));
    else if (!option.takesValue) args.push(option.name);
    else {
      const isLong = LONG.test(`.${option.name}`) || option.name === "--episodes";
      const good = option.choices ?? ["1", "2", "3"];
      args.push(option.name, random.once(2) ? random.pick(good) : anyValue(random, isLong));
    }
  }
  if (random.once(20)) args.push(random.pick(WORDS));
  return args;
}

interface CommandFacts {
  options: readonly { name: string; takesValue: boolean; choices: readonly string[] | undefined }[];
  required: readonly string[];
  takesConfiguration: boolean;
}

const silent = { stdout: { write: () => true }, stderr: { write: () => true } };
const COMMANDS_OF = new Map<string, CommandFacts>();
for (const [name, load] of Object.entries(COMMANDS)) {
  const { options, registeredArguments } = (await load())(silent);
  COMMANDS_OF.set(name, {
    options: options
      // It builds the engine again, which takes minutes, while other processes use it.
      .filter(({ long }) => name !== "setup" || long !== "--force")
      .map((option) => ({
        name: option.long!,
        takesValue: option.required || option.optional,
        choices: option.argChoices,
      })),
    required: options.filter((option) => option.mandatory).map((option) => option.long!),
    takesConfiguration: registeredArguments.some((argument) => argument.name() === "config"),
  });
}

async function runCase(command: string, seed: number): Promise<Report> {
  const args = commandLine(command, new Random(seed));
  const folder = mkdtempSync(join(tmpdir(), "astra-rl-fuzz-"));
  const home = process.cwd();
  process.chdir(folder);
  let [out, err] = ["", ""];
  try {
    makeFiles();
    const folderOfRun = await finishedRun();
    for (const name of ["run", "evaluation.json"]) {
      cpSync(join(folderOfRun, name), name, { recursive: true });
    }
    const before = process.cpuUsage();
    const code = await main(args, {
      stdout: { write: (text: string) => ((out = (out + text).slice(-20_000)), true) },
      stderr: { write: (text: string) => ((err = (err + text).slice(-20_000)), true) },
    });
    const report = { command, seed, code, args };
    const { user, system } = process.cpuUsage(before);
    const seconds = (user + system) / 1e6;
    if (seconds > LIMIT) return { ...report, why: `took ${seconds.toFixed(1)} s of the processor's time` };
    if (values.show) process.stderr.write(`${JSON.stringify(args)}\n${out}${err}code ${code}\n`);
    if (!CODES.includes(code)) return { ...report, why: `ended with code ${code}` };
    if (STACK.test(err)) return { ...report, why: err.trim().slice(-600) };
    if (code !== 0 && err.trim() === "") return { ...report, why: `code ${code} without a word` };
    return report;
  } catch (error) {
    return { command, seed, args, why: `threw ${String((error as Error).stack)}` };
  } finally {
    process.chdir(home);
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs cases until the parent has no more, telling it of each before and after. */
async function runChild(): Promise<void> {
  process.once("disconnect", () => process.exit());
  for await (const { command, seed } of asked()) {
    const report = await runCase(command, seed);
    process.send!(report);
  }
}

async function* asked(): AsyncGenerator<{ command: string; seed: number }> {
  for (;;) {
    yield await new Promise<{ command: string; seed: number }>((resolve) => process.once("message", resolve));
  }
}

async function runParent(): Promise<void> {
  // A server runs until it is stopped, so a valid command line would not end.
  const endless = ["serve", "view"];
  const all = [...COMMANDS_OF.keys()].filter((name) => !endless.includes(name));
  const commands = values.command === undefined ? all : [values.command];
  const [cases, first] = [Number(values.cases), Number(values.seed)];
  let failures = 0;
  let child: ReturnType<typeof start> | null = null;
  const began = performance.now();
  for (const command of commands) {
    const codes = new Map<number, number>();
    let failed = 0;
    for (let seed = first; seed < first + cases; seed += 1) {
      child ??= start();
      const report = await ask(child, command, seed);
      if (report.code !== undefined) codes.set(report.code, (codes.get(report.code) ?? 0) + 1);
      if (report.why === undefined) continue;
      failed += 1;
      const line = JSON.stringify(report.args ?? commandLine(command, new Random(seed)));
      process.stdout.write(`${command} seed ${seed}: ${report.why}\n  ${line.slice(0, 400)}\n`);
      child.kill("SIGKILL");
      child = null;
    }
    failures += failed;
    const counts = [...codes].sort(([a], [b]) => a - b).map(([code, count]) => `${count} × ${code}`);
    process.stdout.write(
      `${command}: ${cases} cases from seed ${first}: codes ${counts.join(", ")}; ${failed} failures\n`,
    );
  }
  child?.disconnect();
  const seconds = Math.round((performance.now() - began) / 1000);
  process.stdout.write(
    `command-line: ${commands.length} × ${cases} cases, ${failures} failures, ${seconds} s\n`,
  );
  process.exitCode = failures === 0 ? 0 : 1;
}

function start() {
  return fork(fileURLToPath(import.meta.url), ["--child", ...(values.show ? ["--show"] : [])], {
    execArgv: process.execArgv,
    stdio: ["ignore", "ignore", values.show ? "inherit" : "ignore", "ipc"],
    // No case may wait for a network, and `setup` may not build against another libtorch than the one in use.
    env: { ...process.env, ...libtorchInUse(), HF_HUB_OFFLINE: "1" },
  });
}

function libtorchInUse(): { LIBTORCH?: string } {
  const file = new URL("../../torch/build/libtorch.json", import.meta.url);
  const { origin, root } = JSON.parse(readFileSync(file, "utf8")) as { origin: string; root: string };
  return origin === "LIBTORCH" ? { LIBTORCH: root } : {};
}

/** The words behind a process's name in /proc: its state first. Empty where there is no such file. */
function statusOf(pid: number): string[] {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    return text.slice(text.lastIndexOf(")") + 2).split(" ");
  } catch {
    return [];
  }
}

/** Of user and system, at the hundred ticks a second that Linux counts. */
const processorSeconds = (pid: number) =>
  (Number(statusOf(pid)[11] ?? 0) + Number(statusOf(pid)[12] ?? 0)) / 100;

/** Whether the process is stopped, or runnable but starved of CPU time. */
function isKeptFromRunning(pid: number, before: number): boolean {
  const [state] = statusOf(pid);
  return state === "T" || (state === "R" && processorSeconds(pid) - before < LIMIT);
}

/** One case in a child: its report, or how the child ended instead. */
function ask(child: ReturnType<typeof start>, command: string, seed: number): Promise<Report> {
  return new Promise((resolve) => {
    const end = (report: Report) => {
      clearTimeout(timer);
      child.off("message", onMessage);
      child.off("exit", onExit);
      resolve(report);
    };
    const onMessage = (report: unknown) => end(report as Report);
    const onExit = (code: number | null, signal: string | null) =>
      end({ command, seed, why: `the process ended (${signal ?? code})` });
    const onSilence = () => {
      if (isKeptFromRunning(child.pid!, before)) timer = setTimeout(onSilence, LONGEST_SILENCE * 1000);
      else end({ command, seed, why: `took more than ${LONGEST_SILENCE} s` });
    };
    const before = processorSeconds(child.pid!);
    let timer = setTimeout(onSilence, LONGEST_SILENCE * 1000);
    child.once("message", onMessage);
    child.once("exit", onExit);
    child.send({ command, seed });
  });
}

await (values.child ? runChild() : runParent());
