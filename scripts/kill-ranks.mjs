#!/usr/bin/env node
/**
 * Kills and stops ranks of a run at random moments, and checks that all ranks end in time, with one error, and that the
 * run that goes on is, to the bit, the one that nothing happened to.
 *
 *   node scripts/kill-ranks.mjs [--moments 50] [--ranks 3] [--seed 1] [--steps 150] [--cable]
 *
 * Every third moment a rank is stopped (SIGSTOP) instead of killed: the others notice at the collective's timeout. With
 * --cable two ranks run in network namespaces, whose connection is cut instead; that needs root and iproute2.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    moments: { type: "string", default: "50" },
    ranks: { type: "string", default: "3" },
    seed: { type: "string", default: "1" },
    steps: { type: "string", default: "150" },
    cable: { type: "boolean", default: false },
  },
});
const [moments, ranksWanted, steps] = [values.moments, values.ranks, values.steps].map(Number);
const worldSize = values.cable ? 2 : ranksWanted;
const program = resolve(import.meta.dirname, "../packages/astra-rl/bin/astra-rl.js");
const folder = mkdtempSync(join(tmpdir(), "astra-kill-ranks-"));
/** Seconds. */
const TIMEOUT = 4;
/** Seconds in which the ranks must have found each other: a rank that is gone before it came is not missed earlier. */
const CONNECT = 10;
/** Seconds from a kill to the end of the others. */
const LONGEST = 5;

let state = Number(values.seed) >>> 0;
/** A linear congruential generator: the moments can be repeated. */
function random() {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return state / 2 ** 32;
}

const config = join(folder, "run.yaml");
writeFileSync(join(folder, "prompts.txt"), "Hello. \nIt rained. \nWhat now? \nThe car is back. \n");
writeFileSync(
  config,
  `
models: { tester: embedded:chatter, target: embedded:chatter }
prompts: { train: ./prompts.txt, dev: ./prompts.txt, test: ./prompts.txt }
sampler: { width: 2, depth: 2 }
scorer: { type: keyword, entries: [{ term: the, weight: 0.9 }, { term: i, weight: 0.9 }] }
generation: { tester: { maxNewTokens: 8 }, target: { maxNewTokens: 8 } }
algorithm: { type: grpo, klLossCoefficient: 0.05 }
training: { trainingSteps: ${steps}, evaluateEvery: 10, evaluationRollouts: 3, checkpointEvery: 2, numEpisodesPerExperience: 6, batchSize: 8, learningRate: 1e-4 }
`,
);

const ip = (...args) => {
  const { status, stderr } = spawnSync("ip", args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`ip ${args.join(" ")}: ${stderr}`);
};
const space = (rank) => `kill-ranks-${rank}`;
if (values.cable) {
  for (const rank of [0, 1]) ip("netns", "add", space(rank));
  process.once("exit", () => {
    for (const rank of [0, 1]) ip("netns", "del", space(rank));
  });
  ip("link", "add", "cable0", "netns", space(0), "type", "veth", "peer", "name", "cable1", "netns", space(1));
  for (const rank of [0, 1]) {
    ip("-n", space(rank), "addr", "add", `10.214.0.${rank + 1}/24`, "dev", `cable${rank}`);
    for (const device of ["lo", `cable${rank}`]) ip("-n", space(rank), "link", "set", device, "up");
  }
}

/** Ports below those that systems give away. */
let port = 21_000 + (process.pid % 9000);

function startRanks(runFolder, resume) {
  port += 1;
  return Array.from({ length: worldSize }, (_, rank) => {
    const args = [
      program,
      "train",
      config,
      "--run-dir",
      runFolder,
      "--quiet",
      ...(resume ? ["--resume"] : []),
    ];
    const [command, ...before] = values.cable
      ? ["ip", "netns", "exec", space(rank), process.execPath]
      : [process.execPath];
    const child = spawn(command, [...before, ...args], {
      stdio: ["ignore", "ignore", "pipe"],
      env: {
        ...process.env,
        OMP_NUM_THREADS: "1",
        RANK: String(rank),
        WORLD_SIZE: String(worldSize),
        MASTER_ADDR: values.cable ? "10.214.0.1" : "127.0.0.1",
        MASTER_PORT: String(port),
        ASTRA_COLLECTIVE_TIMEOUT: String(TIMEOUT),
        ASTRA_CONNECT_TIMEOUT: String(CONNECT),
      },
    });
    let errors = "";
    child.stderr.on("data", (chunk) => (errors += chunk));
    const ended = new Promise((fulfil) => {
      child.once("close", (code, signal) => fulfil({ rank, code, signal, errors, at: performance.now() }));
    });
    return { child, ended, isRunning: () => child.exitCode === null && child.signalCode === null };
  });
}

const stepsOf = (runFolder) => {
  const file = join(runFolder, "metrics.jsonl");
  return existsSync(file) ? readFileSync(file, "utf8").split("\n").length - 1 : 0;
};
const fail = (message) => {
  console.error(`kill-ranks: ${message}`);
  process.exitCode = 1;
};

const whole = join(folder, "whole");
const untouched = await Promise.all(startRanks(whole, false).map(({ ended }) => ended));
if (untouched.some(({ code }) => code !== 0)) {
  fail(`the run that nothing happens to failed: ${untouched.map(({ errors }) => errors).join("")}`);
  process.exit();
}

const run = join(folder, "run");
let done = 0;
const delays = { SIGKILL: [], SIGSTOP: [], cut: [], joining: [] };
while (done < moments && stepsOf(run) < steps) {
  const ranks = startRanks(run, existsSync(join(run, "checkpoints", "last")));
  if (!existsSync(join(run, "checkpoints", "last"))) {
    // Without a checkpoint there is nothing to go on from: the first kill comes after one.
    while (!existsSync(join(run, "checkpoints", "last"))) await sleep(20);
  }
  // One in four while the ranks start and meet, the others within the steps after the first.
  const before = stepsOf(run);
  const isEarly = random() < 0.25;
  const isWaiting = () => stepsOf(run) === before && ranks.every((rank) => rank.isRunning());
  if (!isEarly) while (isWaiting()) await sleep(10);
  await sleep((isEarly ? 2500 : 1000) * random());
  const victim = Math.floor(random() * worldSize);
  const signal = values.cable ? "cut" : done % 3 === 2 ? "SIGSTOP" : "SIGKILL";
  const own = ranks[victim];
  if (!own.isRunning()) break;
  if (values.cable) ip("-n", space(victim), "link", "set", `cable${victim}`, "down");
  else own.child.kill(signal);
  const at = performance.now();
  const others = await Promise.race([
    // At a cut both live, and both must end.
    Promise.all(ranks.filter((_, rank) => values.cable || rank !== victim).map(({ ended }) => ended)),
    sleep(90_000).then(() => null),
  ]);
  if (values.cable) ip("-n", space(victim), "link", "set", `cable${victim}`, "up");
  else own.child.kill("SIGKILL");
  done += 1;
  if (others === null) {
    fail(`moment ${done}: ranks still run 90 s after ${signal} of rank ${victim}`);
    for (const { child } of ranks) child.kill("SIGKILL");
    break;
  }
  const last = Math.max(...others.map((other) => other.at - at)) / 1000;
  // That a run goes on after a process that is no more is said, and no error.
  const lines = others.flatMap(({ errors }) =>
    errors.split("\n").filter((line) => line !== "" && !line.includes(": taking over the lock of ")),
  );
  const isJoining = lines.some((line) => line.includes("join"));
  delays[isJoining ? "joining" : signal].push(last);
  const allowed = LONGEST + (isJoining ? CONNECT : signal === "SIGSTOP" ? TIMEOUT : 0);
  if (last > allowed)
    fail(`moment ${done}: ${signal} of rank ${victim}: the others ended after ${last.toFixed(1)} s`);
  if (others.some(({ code }) => code === 0)) fail(`moment ${done}: a rank ended with code 0`);
  if (signal === "SIGKILL" && !isJoining && lines.length !== 1) {
    fail(`moment ${done}: ${signal} of rank ${victim}: expected one line, got ${JSON.stringify(lines)}`);
  }
  if (lines.some((line) => /^\s+at /u.test(line))) fail(`moment ${done}: a stack trace: ${lines.join("\n")}`);
  console.log(
    `${String(done).padStart(3)}  step ${String(stepsOf(run)).padStart(3)}  ${signal} of rank ${victim}: all ended after ${last.toFixed(2)} s${isJoining ? " (while they met)" : ""}`,
  );
}
const final = await Promise.all(startRanks(run, true).map(({ ended }) => ended));
if (final.some(({ code }) => code !== 0))
  fail(`the resumed run failed: ${final.map(({ errors }) => errors).join("")}`);
const untimed = (runFolder) =>
  readFileSync(join(runFolder, "metrics.jsonl"), "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) =>
      JSON.stringify(Object.entries(JSON.parse(line)).filter(([name]) => !name.startsWith("time/"))),
    )
    .join("\n");
const bytes = (runFolder, name) => readFileSync(join(runFolder, name));
const same =
  untimed(run) === untimed(whole) &&
  [
    "graphs.jsonl",
    "checkpoints/last/model.safetensors",
    "checkpoints/last/state/optimizer.safetensors",
  ].every((name) => bytes(run, name).equals(bytes(whole, name)));
if (!same) fail(`the resumed run differs from the one that nothing happened to: ${run}, ${whole}`);
const summary = (list) =>
  list.length === 0
    ? "none"
    : `${list.length}, others ended after ${[...list].sort((a, b) => a - b)[Math.floor(list.length / 2)].toFixed(2)} s (median), ${Math.max(...list).toFixed(2)} s (longest)`;
console.log(`killed: ${summary(delays.SIGKILL)}`);
console.log(`stopped: ${summary(delays.SIGSTOP)}`);
console.log(`cut off: ${summary(delays.cut)}`);
console.log(`any of these, while the ranks met: ${summary(delays.joining)}`);
console.log(
  same
    ? "resumed: metrics, graphs, weights and optimizer state are the same, to the bit"
    : "resumed: DIFFERENT",
);
if (process.exitCode !== 1) rmSync(folder, { recursive: true });
