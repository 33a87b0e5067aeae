import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { distributed } from "@astra-rl/torch";
import { packageVersion, UsageError } from "@astra-rl/base";
import { Option, type CommandUnknownOpts } from "@commander-js/extra-typings";
import { exitOf, programScript } from "../program/child.js";
import { EndedTogetherError, EXIT, explain, NoVerdictError } from "../program/exit.js";
import { requireSame, StoppedError } from "../run/index.js";
import { wholeNumber } from "../program/option-values.js";
import type { Output } from "../program/output.js";

export const processesOption = () =>
  new Option(
    "--processes <n>",
    "number of processes on this machine that share the work; for several machines, see torchrun, srun and " +
      "mpirun in the guide",
  ).argParser(wholeNumber(1, 1024));

/** Milliseconds after the failure of a process until all are killed. */
const KILL_DELAY_MS = 5000;

/** Milliseconds by which other ranks delay their errors, so that rank 0 reports first. */
const RANK_ZERO_FIRST = 1000;

/**
 * Runs a command in `count` processes of this machine; for 1 as one of the processes that a launcher started, or alone.
 *
 * All ranks run the same program on the same data: rollouts, forward passes and gradients are computed in shares, and
 * rank 0 writes and shows the results.
 *
 * @param command with the arguments that it was given
 */
export async function inProcesses(
  count: number,
  command: CommandUnknownOpts,
  output: Output,
  run: () => Promise<void>,
): Promise<void> {
  if (count > 1) return runProcesses(count, command);
  const launched = distributed.launchedOptions();
  if (launched === null) return run();
  const { rank, worldSize } = launched;
  const onLost = (lost: number | null) => {
    // Only the first remaining rank prints the line.
    if (lost !== null && rank === (lost === 0 ? 1 : 0)) {
      output.endLive();
      process.stderr.write(
        `astra-rl: rank ${lost} of ${worldSize} has exited, so all ranks exit; see its output for the reason\n`,
      );
    }
    process.exit(EXIT.failed);
  };
  await distributed.initProcessGroup({ ...launched, onLost });
  try {
    await requireSame("the version of astra-rl", packageVersion);
    await run();
  } catch (error) {
    const isOrderly = error instanceof NoVerdictError || error instanceof StoppedError;
    // Errors of all ranks are reported by rank 0, which then ends the others.
    if (rank > 0 && !isOrderly) await new Promise((resolve) => setTimeout(resolve, RANK_ZERO_FIRST));
    if (isOrderly) await distributed.destroyProcessGroup();
    else distributed.announceFailure();
    if (rank > 0 && isOrderly) throw new EndedTogetherError(explain(error).code);
    throw error;
  }
  await distributed.destroyProcessGroup();
}

/** @throws UsageError if a launcher has started several processes of a command that runs in one process */
export function requireAlone(command: string): void {
  const launched = distributed.launchedOptions();
  if (launched === null) return;
  throw new UsageError(
    "single-process-command",
    `${command} runs in one process, but a launcher has started ${launched.worldSize}; start it without the launcher ` +
      "(only train, eval and rollout run in several processes)",
  );
}

/** Starts this same command several times on this machine, as torchrun would, and waits for all. */
async function runProcesses(count: number, command: CommandUnknownOpts): Promise<void> {
  if (distributed.launchedOptions() !== null) {
    throw new UsageError(
      "already-launched",
      "--processes: a launcher has started several processes already; leave it out",
    );
  }
  const given = (command.parent as unknown as { rawArgs: string[] }).rawArgs;
  const at = given.indexOf("--processes");
  const args = given.filter(
    (arg, index) => (at < 0 || (index !== at && index !== at + 1)) && !arg.startsWith("--processes="),
  );
  const port = await freePort();
  const group = { WORLD_SIZE: count, LOCAL_WORLD_SIZE: count, MASTER_ADDR: "127.0.0.1", MASTER_PORT: port };
  const children = Array.from({ length: count }, (_, rank) => {
    const numbers = Object.entries({ ...group, RANK: rank, LOCAL_RANK: rank });
    const env = {
      ...process.env,
      ...Object.fromEntries(numbers.map(([name, value]) => [name, String(value)])),
    };
    return spawn(process.execPath, [programScript(), ...args], {
      stdio: ["ignore", "inherit", "inherit"],
      env,
    });
  });
  // The terminal sends Ctrl-C to all of them, which treat two signals in quick succession as one.
  const passOn = (signal: NodeJS.Signals) => {
    for (const child of children) child.kill(signal);
  };
  // Ctrl-\ makes rank 0 print a conversation; this process ignores it.
  const ignore = () => undefined;
  process.on("SIGTERM", passOn);
  process.on("SIGINT", passOn);
  process.on("SIGQUIT", ignore);
  let mercy: NodeJS.Timeout | undefined;
  const end = (code: number) => {
    // Ranks detect the end of another one, but not while they connect.
    if (code !== EXIT.done) mercy ??= setTimeout(() => passOn("SIGKILL"), KILL_DELAY_MS);
    return code;
  };
  try {
    const codes = await Promise.all(children.map((child) => exitOf(child).then(end)));
    // The exit code of rank 0 is that of the run.
    const code = codes.find((each) => each !== EXIT.done);
    if (code !== undefined) throw new EndedTogetherError(codes[0] === EXIT.done ? code : codes[0]!);
  } finally {
    clearTimeout(mercy);
    process.off("SIGTERM", passOn);
    process.off("SIGINT", passOn);
    process.off("SIGQUIT", ignore);
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
