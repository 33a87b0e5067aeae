/**
 * One process and several, each with one thread: episodes per second, and what communication costs.
 *
 *     npm run bench:distributed -- [--model DIR] [--processes 1,2] [--episodes 8] [--steps 3] [--rounds 3] [--dtype auto]
 *         [--share 0.5] [--set KEY=VALUE …] [--output FILE.md]
 *
 * The sizes alternate, `rounds` times, so that changes of the machine's speed affect all of them. The first step of
 * each run is not counted. "waiting and reducing" is `time/reduce_s`: the sum of the gradients, with the wait for the
 * slowest rank; "reducing alone" is the same sum between processes that do not wait. The model is GPT-2 with 124M
 * parameters.
 *
 * With --share each process gets at most that part of a processor, even if others are idle, so that two processors can
 * simulate four processes (Linux with control groups of version 1, as root).
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { makeCheckpoint } from "./make-checkpoint.js";
import { busy, median } from "./measure.js";

const root = fileURLToPath(new URL("..", import.meta.url));

const { values } = parseArgs({
  options: {
    model: { type: "string", default: join(root, ".cache", "gpt2-124m") },
    processes: { type: "string", default: "1,2" },
    episodes: { type: "string", default: "8" },
    steps: { type: "string", default: "3" },
    rounds: { type: "string", default: "3" },
    dtype: { type: "string", default: "auto" },
    share: { type: "string" },
    set: { type: "string", multiple: true, default: [] },
    output: { type: "string" },
  },
});
const sizes = values.processes.split(",").map(Number);
const log = (line: string) => console.error(line);

interface Round {
  rollout: number;
  update: number;
  reduce: number;
}

const controlGroup = (rank: number) => `/sys/fs/cgroup/cpu/bench-distributed-${process.pid}-${rank}`;

/** Output of rank 0 of processes with one thread each, which may be limited by control groups. */
async function ranks(processes: number, args: readonly string[], cwd: string): Promise<string> {
  const port = 20_000 + (process.pid % 9000);
  const one = async (rank: number): Promise<string> => {
    const group = { RANK: rank, LOCAL_RANK: rank, WORLD_SIZE: processes, LOCAL_WORLD_SIZE: processes };
    const numbers = Object.fromEntries(Object.entries(group).map(([name, value]) => [name, String(value)]));
    const environment = { ...numbers, MASTER_ADDR: "127.0.0.1", MASTER_PORT: String(port) };
    // The shell enters the group and is replaced by the process.
    const enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"';
    const limited = values.share === undefined ? [] : ["/bin/sh", "-c", enter, controlGroup(rank)];
    const [command, ...rest] = [...limited, process.execPath, ...args];
    const child = spawn(command!, rest, {
      cwd,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, OMP_NUM_THREADS: "1", ...(processes === 1 ? {} : environment) },
    });
    let [output, errors] = ["", ""];
    child.stdout.on("data", (chunk: Buffer) => (output += String(chunk)));
    child.stderr.on("data", (chunk: Buffer) => (errors += String(chunk)));
    const [status] = (await once(child, "close")) as [number | null];
    // 3: no verdict on the target, which these models are not meant to give.
    if (status !== 0 && status !== 3) throw new Error(errors);
    return output;
  };
  return (await Promise.all(Array.from({ length: processes }, (_, rank) => one(rank))))[0]!;
}

/** Seconds of the counted steps of one run. */
async function train(processes: number, config: string): Promise<Round[]> {
  const folder = mkdtempSync(join(tmpdir(), "bench-distributed-"));
  try {
    const program = join(root, "packages", "astra-rl", "bin", "astra-rl.js");
    const settings = values.set.flatMap((setting) => ["--set", setting]);
    const args = ["train", config, "--run-dir", join(folder, "run"), "--quiet", ...settings];
    await ranks(processes, [program, ...args], root);
    return readFileSync(join(folder, "run", "metrics.jsonl"), "utf8")
      .trim()
      .split("\n")
      .slice(1)
      .map((line) => {
        const record = JSON.parse(line) as Record<string, number>;
        return {
          rollout: record["time/rollout_s"]!,
          update: record["time/update_s"]!,
          reduce: record["time/reduce_s"] ?? 0,
        };
      });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Wall-clock and processor seconds in which processes sum 124M numbers each. */
async function adding(processes: number): Promise<{ wall: number; processor: number }> {
  const text = `
    import { distributed, ones } from "@astra-rl/torch";
    await distributed.initProcessGroup(distributed.launchedOptions());
    // As many numbers as in GPT-2, in tensors of its sizes.
    const tensors = [ones([50257, 768]), ones([1024, 768]), ...Array.from({ length: 12 }, () => ones([7_087_872]))];
    const times = [];
    for (let i = 0; i < 6; i++) {
      await distributed.barrier();
      const [start, before] = [performance.now(), process.cpuUsage()];
      await distributed.allReduce_(tensors);
      const { user, system } = process.cpuUsage(before);
      if (i > 0) times.push([(performance.now() - start) / 1000, (user + system) / 1e6]);
    }
    console.log(JSON.stringify(times));
    await distributed.destroyProcessGroup();`;
  const output = await ranks(processes, ["--input-type=module", "-e", text], join(root, "packages", "lm"));
  const times = JSON.parse(output) as [number, number][];
  return {
    wall: median(times.map(([wall]) => wall)),
    processor: median(times.map(([, processor]) => processor)),
  };
}

if (busy()) log("This machine is busy: the figures say little.");
const prompts = join(root, "packages", "astra-rl", "world", "prompts", "train.json");
if (!existsSync(values.model)) {
  log("Making the checkpoint: some minutes.");
  const texts = JSON.parse(readFileSync(prompts, "utf8")) as string[];
  await makeCheckpoint({ prompts: texts, output: values.model, steps: 60, seed: 0, log });
}
const folder = mkdtempSync(join(tmpdir(), "bench-distributed-"));
const config = join(folder, "run.yaml");
writeFileSync(
  config,
  `
models: { tester: ${JSON.stringify(values.model)}, target: ${JSON.stringify(values.model)}, dtype: ${values.dtype} }
prompts: { train: ${JSON.stringify(prompts)}, dev: ${JSON.stringify(prompts)}, test: ${JSON.stringify(prompts)} }
sampler: { width: 2, depth: 3 }
scorer: { type: keyword, entries: [{ term: the, weight: 0.9 }, { term: i, weight: 0.9 }] }
generation: { tester: { maxNewTokens: 32, minNewTokens: 32 }, target: { maxNewTokens: 32, minNewTokens: 32 } }
algorithm: { type: grpo, klLossCoefficient: 0.05 }
training: { trainingSteps: ${Number(values.steps) + 1}, evaluateEvery: 0, checkpointEvery: 0, keepGraphs: false, numEpisodesPerExperience: ${values.episodes}, batchSize: 16, learningRate: 1e-5 }
`,
);
if (values.share !== undefined) {
  for (let rank = 0; rank < Math.max(...sizes); rank++) {
    mkdirSync(controlGroup(rank));
    // Short periods: a process that waits for its next period delays the others.
    writeFileSync(`${controlGroup(rank)}/cpu.cfs_period_us`, "10000");
    writeFileSync(
      `${controlGroup(rank)}/cpu.cfs_quota_us`,
      String(Math.round(10_000 * Number(values.share))),
    );
  }
  process.on("exit", () => {
    for (let rank = 0; rank < Math.max(...sizes); rank++) rmdirSync(controlGroup(rank));
  });
}
const rounds = new Map(sizes.map((size): [number, Round[]] => [size, []]));
try {
  for (let round = 0; round < Number(values.rounds); round++) {
    for (const size of sizes) {
      rounds.get(size)!.push(...(await train(size, config)));
      log(`round ${round + 1}: ${size} of ${sizes.join(", ")} processes`);
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
const episodes = Number(values.episodes);
const lines = [
  `${cpus()[0]?.model ?? "unknown"}, one thread a process${values.share === undefined ? "" : `, ${values.share} of a processor each`}, ${episodes} episodes of width 2 and depth 3 a step, ${values.rounds} rounds of ${values.steps} steps, medians`,
  "",
  "| processes | rollout | update | of it waiting and reducing | reducing alone | episodes per second | times one process |",
  "| --------- | ------- | ------ | ------------------------ | ------------ | ------------------- | ----------------- |",
];
let one: number | null = null;
for (const size of sizes) {
  const all = rounds.get(size)!;
  const of = (value: (round: Round) => number) => median(all.map(value));
  const [rollout, update, reduce] = [
    of((each) => each.rollout),
    of((each) => each.update),
    of((each) => each.reduce),
  ];
  const rate = median(all.map((each) => episodes / (each.rollout + each.update)));
  one ??= size === 1 ? rate : null;
  const sum = size === 1 ? null : await adding(size);
  const share = (part: number) => `${part.toFixed(2)} s (${((100 * part) / update).toFixed(1)} %)`;
  lines.push(
    `| ${size} | ${rollout.toFixed(2)} s | ${update.toFixed(2)} s | ${size === 1 ? "–" : share(reduce)} | ` +
      `${sum === null ? "–" : `${share(sum.wall)}, ${sum.processor.toFixed(2)} s of a processor`} | ${rate.toFixed(3)} | ` +
      `${one === null ? "–" : (rate / one).toFixed(2)} |`,
  );
}
console.log(lines.join("\n"));
if (values.output !== undefined) writeFileSync(values.output, `${lines.join("\n")}\n`);
