import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { engineInformation } from "@astra-rl/torch";
import { parseMetricsLines } from "@astra-rl/records";
import { chatterRun } from "../../../method/test/support/chatter-run.js";

// Set by npm run nightly.
const PYTHON = process.env["ASTRA_PYTHON"] ?? "";
const TORCHRUN = PYTHON === "" ? "" : join(dirname(PYTHON), "torchrun");
if (!existsSync(TORCHRUN)) {
  process.stderr.write(
    "launchers.test.ts: torchrun is not tried: set ASTRA_PYTHON to a Python with torch, or run npm run nightly\n",
  );
}

const PROGRAM = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));

const running = new Set<ReturnType<typeof spawn>>();
afterEach(() => {
  for (const child of running) child.kill("SIGKILL");
});

const configured = (steps: number) =>
  chatterRun({
    algorithm: "{ type: grpo }",
    training: `{ trainingSteps: ${steps}, evaluateEvery: 0, checkpointEvery: 1, numEpisodesPerExperience: 4 }`,
  }).file;

function run(command: string, args: readonly string[], env: Record<string, string> = {}) {
  const child = spawn(command, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, OMP_NUM_THREADS: "1", ...env },
  });
  running.add(child);
  let [out, err] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => (out += String(chunk)));
  child.stderr.on("data", (chunk: Buffer) => (err += String(chunk)));
  return new Promise<{ code: number | null; out: string; err: string }>((resolve) => {
    child.once("close", (code) => {
      running.delete(child);
      resolve({ code, out, err });
    });
  });
}

const metricsOf = (folder: string) => {
  const file = join(folder, "metrics.jsonl");
  return existsSync(file) ? parseMetricsLines(readFileSync(file, "utf8"), file) : [];
};
const untimed = (folder: string) =>
  metricsOf(folder).map((record) =>
    Object.fromEntries(Object.entries(record).filter(([name]) => !name.startsWith("time/"))),
  );

const processesOf = (folder: string) =>
  (
    JSON.parse(readFileSync(join(folder, "run.json"), "utf8")) as {
      sessions: { engine: { processes: number } }[];
    }
  ).sessions.map(({ engine }) => engine.processes);

describe("launchers", () => {
  it.each([
    [
      "srun",
      (rank: number) => ({
        SLURM_PROCID: String(rank),
        SLURM_STEP_NUM_TASKS: "2",
        SLURM_LOCALID: String(rank),
        SLURM_STEP_NODELIST: "localhost",
        SLURM_JOB_ID: String(process.pid),
      }),
    ],
    [
      "mpirun on one machine",
      (rank: number) => ({
        OMPI_COMM_WORLD_RANK: String(rank),
        OMPI_COMM_WORLD_SIZE: "2",
        OMPI_COMM_WORLD_LOCAL_SIZE: "2",
        MASTER_PORT: String(24_000 + (process.pid % 5000)),
      }),
    ],
  ])("%s: the same command on all ranks is one run", async (_, environment) => {
    const file = configured(2);
    const folder = join(file, "..", "run");
    const args = [PROGRAM, "train", file, "--run-dir", folder, "--quiet"];
    const ended = await Promise.all([0, 1].map((rank) => run(process.execPath, args, environment(rank))));
    expect(ended).toEqual([0, 1].map(() => ({ code: 0, out: "", err: "" })));
    expect(metricsOf(folder)).toHaveLength(2);
    expect(processesOf(folder)).toEqual([2]);
  });
});

describe("astra-rl doctor --distributed", () => {
  it("shows the ranks, and measures their connection", async () => {
    const { code, out, err } = await run(process.execPath, [
      PROGRAM,
      "doctor",
      "--distributed",
      "--processes",
      "2",
    ]);
    expect([code, err]).toEqual([0, ""]);
    expect(out).toMatch(/^rank +machine +libtorch +ISA +threads +free memory$/mu);
    expect(out.match(/^[01] +\S+/gmu)).toHaveLength(2);
    expect(out).toMatch(/^latency +\d+\.\d+ ms/mu);
    expect(out).toMatch(/^bandwidth +\d+ MB of gradients summed per second$/mu);
  });

  it("explains how to start it", async () => {
    const { code, err } = await run(process.execPath, [PROGRAM, "doctor", "--distributed"]);
    expect(code).toBe(2);
    expect(err).toMatch(
      /^astra-rl: --distributed: no launcher has started several processes; start it like a training run/u,
    );
  });
});

describe.skipIf(!existsSync(TORCHRUN))("torchrun", () => {
  const torchrun = (...args: string[]) =>
    run(
      TORCHRUN,
      [
        "--no-python",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "localhost:0",
        ...args,
      ],
      engineInformation().libtorch.startsWith("1.") ? { TORCH_DISABLE_SHARE_RDZV_TCP_STORE: "1" } : {},
    );

  it("starts a run", async () => {
    const file = configured(2);
    const folder = join(file, "..", "run");
    const { code } = await torchrun(process.execPath, PROGRAM, "train", file, "--run-dir", folder, "--quiet");
    expect(code).toBe(0);
    expect(processesOf(folder)).toEqual([2]);
  });

  it("restarts it after the death of a rank, and finishes like an uninterrupted run", async () => {
    const file = configured(12);
    const [folder, whole] = ["run", "whole"].map((name) => join(file, "..", name)) as [string, string];
    // A run that resumes where there is something to resume.
    const script = join(file, "..", "train.sh");
    writeFileSync(
      script,
      `resume=""; [ -d "$3/checkpoints/last" ] && resume=--resume
exec "$1" "$2" train ${file} --run-dir "$3" --quiet $resume\n`,
    );
    const train = (to: string) => ["sh", script, process.execPath, PROGRAM, to];
    expect((await torchrun(...train(whole))).code).toBe(0);
    const ended = torchrun("--max-restarts", "2", ...train(folder));
    while (metricsOf(folder).length < 4) await sleep(20);
    const victim = ranksIn(folder).find(({ rank }) => rank === 1)!;
    process.kill(victim.pid, "SIGKILL");
    expect((await ended).code).toBe(0);
    expect(untimed(folder)).toEqual(untimed(whole));
    expect(processesOf(folder)).toEqual([2, 2]);
  });
});

/** Processes that train in a folder, from the system's list. */
function ranksIn(folder: string): { pid: number; rank: number }[] {
  const read = (path: string) => {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return "";
    }
  };
  return readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .flatMap((pid) => {
      const command = read(`/proc/${pid}/cmdline`).split("\0");
      const rank = /(?:^|\0)RANK=(\d+)/u.exec(read(`/proc/${pid}/environ`))?.[1];
      return command[1] === PROGRAM && command.includes(folder) && rank !== undefined
        ? [{ pid: Number(pid), rank: Number(rank) }]
        : [];
    });
}
