// Run folders that are renamed while a run uses them, and processes that compete for a lock: nothing may be lost or
// mixed. Killed runs are `interruptions.ts`.
//
//   node --import tsx packages/astra-rl/fuzz/run-folders.ts --renames 100 --races 100 --seed 1
//
// Every second contender of a race is in its own PID namespace, like a container, if the machine supports it
// (`unshare --pid`); a line says where it does not.
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { UsageError } from "@astra-rl/base";
import { LOCK_FILE, RunLock } from "@astra-rl/records";
import type { TrainingCallback } from "@astra-rl/method";
import { Random } from "../../lm/fuzz/random.js";
import { assemble, QUICK, textOf, weightsOf } from "../../method/test/training/support.js";

const { values } = parseArgs({
  options: {
    renames: { type: "string", default: "5" },
    races: { type: "string", default: "5" },
    seed: { type: "string", default: "1" },
    contend: { type: "boolean", default: false },
  },
});

/** How long a winner works in the folder. Milliseconds. */
const WORK = 15;

/** One contender: for each given folder, it tries once, and works in it if it wins. */
async function contend(): Promise<void> {
  process.stdout.write("ready\n");
  for await (const folder of createInterface({ input: process.stdin })) {
    let said = "refused";
    try {
      const lock = RunLock.take(folder);
      const journal = join(folder, "journal");
      lock.check();
      appendFileSync(journal, `begin ${process.ppid}-${process.pid}\n`);
      await new Promise((resolve) => setTimeout(resolve, WORK));
      lock.check();
      appendFileSync(journal, `end ${process.ppid}-${process.pid}\n`);
      lock.release();
      said = "worked";
    } catch (error) {
      if (!(error instanceof UsageError)) said = `failed: ${(error as Error).message}`;
    }
    process.stdout.write(`${said}\n`);
  }
}

/** A contender in a separate process. */
class Contender {
  readonly #process: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(apart: boolean) {
    const own = [process.execPath, "--import", "tsx", fileURLToPath(import.meta.url), "--contend"];
    const command = apart ? ["unshare", "--pid", "--fork", "--kill-child", ...own] : own;
    this.#process = spawn(command[0]!, command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
    this.#lines = createInterface({ input: this.#process.stdout! })[Symbol.asyncIterator]();
  }

  async line(): Promise<string> {
    const { value, done } = await this.#lines.next();
    return done === true ? "ended" : value;
  }

  async try(folder: string): Promise<string> {
    this.#process.stdin!.write(`${folder}\n`);
    return this.line();
  }

  end(): void {
    this.#process.stdin!.end();
  }
}

/** The state before a race: nothing, or the lock of an exited process. */
function prepare(random: Random, folder: string): void {
  mkdirSync(folder);
  const dead = spawnSync(process.execPath, ["-e", ""]).pid;
  const left = random.pick([null, { pid: dead, host: hostname(), began: null }, "{"]);
  if (left !== null)
    writeFileSync(join(folder, LOCK_FILE), typeof left === "string" ? left : JSON.stringify(left));
}

async function races(count: number, random: Random, root: string): Promise<string[]> {
  const problems: string[] = [];
  const canBeApart = spawnSync("unshare", ["--pid", "--fork", "true"]).status === 0;
  if (!canBeApart) process.stdout.write("races: without PID namespaces, which cannot be made here\n");
  const contenders = [0, 1, 2, 3].map((index) => new Contender(canBeApart && index % 2 === 1));
  for (const contender of contenders) await contender.line();
  let won = 0;
  for (let race = 0; race < count; race++) {
    const folder = join(root, `race-${race}`);
    prepare(random, folder);
    const said = await Promise.all(contenders.map((contender) => contender.try(folder)));
    const wins = said.filter((word) => word === "worked").length;
    won += wins;
    problems.push(
      ...said.filter((word) => !["worked", "refused"].includes(word)).map((word) => `race ${race}: ${word}`),
    );
    const journal = join(folder, "journal");
    const lines = existsSync(journal) ? readFileSync(journal, "utf8").trimEnd().split("\n") : [];
    // Each one ended before the next one started.
    const isMixed = lines.some(
      (line, at) =>
        line !== (at % 2 === 0 ? line.replace(/^end/u, "begin") : lines[at - 1]!.replace(/^begin/u, "end")),
    );
    if (isMixed || lines.length !== 2 * wins) problems.push(`race ${race}: mixed: ${lines.join(", ")}`);
    if (existsSync(join(folder, LOCK_FILE)) && wins > 0) problems.push(`race ${race}: the lock was left`);
  }
  for (const contender of contenders) contender.end();
  process.stdout.write(
    `races: ${count} with ${contenders.length} contenders${canBeApart ? ", two of them in PID namespaces of their own" : ""}, ` +
      `${won} times somebody worked, ${problems.length} problems\n`,
  );
  return problems;
}

const FILES = ["metrics.jsonl", "graphs.jsonl", "evaluations.jsonl"] as const;

/** Trains in a folder; @returns the weights, or the words of the error that ended it */
async function train(folder: string, resume: boolean, callbacks: TrainingCallback<string, string>[] = []) {
  const { system, trainer } = assemble(QUICK, { runDirectory: folder, resume, callbacks });
  try {
    await trainer.train();
    return weightsOf(system);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return error.message;
  } finally {
    trainer.dispose();
    system.dispose();
  }
}

async function renames(count: number, random: Random, root: string): Promise<string[]> {
  const problems: string[] = [];
  const whole = join(root, "whole");
  const weights = await train(whole, false);
  const HOOKS = ["onExperience", "onStep", "onStepKept", "onCheckpoint"] as const;
  let noticed = 0;
  for (let rename = 0; rename < count; rename++) {
    const [folder, moved] = [join(root, `run-${rename}`), join(root, `moved-${rename}`)];
    const [hook, after] = [random.pick(HOOKS), random.below(9)];
    let calls = 0;
    const callback = {
      name: "rename",
      [hook]: () => {
        calls += 1;
        if (calls - 1 !== after) return;
        // Now, or while what comes next is under way.
        if (random.once(2)) renameSync(folder, moved);
        else setTimeout(() => renameSync(folder, moved), random.below(30));
      },
    } as TrainingCallback<string, string>;
    const what = `rename ${rename} (${hook} ${after})`;
    const said = await train(folder, false, [callback]);
    await new Promise((resolve) => setTimeout(resolve, 40));
    const isSplit = existsSync(folder) && existsSync(moved);
    if (isSplit) problems.push(`${what}: two folders`);
    const place = existsSync(moved) ? moved : folder;
    if (typeof said === "string") {
      noticed += 1;
      if (!said.includes("while this run was using it")) problems.push(`${what}: ${said}`);
      if (!existsSync(join(place, "checkpoints", "last"))) continue;
      const resumed = await train(place, true);
      if (JSON.stringify(resumed) !== JSON.stringify(weights)) problems.push(`${what}: other weights`);
    }
    for (const name of FILES) {
      if (textOf(place, name) !== textOf(whole, name)) problems.push(`${what}: ${name} differs`);
    }
    rmSync(place, { recursive: true });
  }
  process.stdout.write(
    `renames: ${count}, ${noticed} of them while the run was using the folder, ${problems.length} problems\n`,
  );
  return problems;
}

if (values.contend) await contend();
else {
  const random = new Random(Number(values.seed));
  const root = mkdtempSync(join(tmpdir(), "astra-rl-run-folders-"));
  const problems = [
    ...(await races(Number(values.races), random, root)),
    ...(await renames(Number(values.renames), random, root)),
  ];
  for (const problem of problems) process.stdout.write(`${problem}\n`);
  process.stdout.write(`run-folders: ${problems.length} problems\n`);
  rmSync(root, { recursive: true, force: true });
  process.exitCode = problems.length === 0 ? 0 : 1;
}
