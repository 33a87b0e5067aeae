/**
 * A process's group as described by launchers: torchrun, PyTorchJob, Slurm's srun, Open MPI and MPICH. Works without
 * the addon.
 */
import { describeValue, UsageError } from "@astra-rl/base";
import type { ProcessGroupOptions } from "./distributed.js";

type Environment = Readonly<Record<string, string | undefined>>;

/** PyTorch's default port. */
const DEFAULT_PORT = 29500;

/** Seconds, instead of the defaults of `initProcessGroup`. */
const TIMEOUTS = {
  timeout: "ASTRA_COLLECTIVE_TIMEOUT",
  connectTimeout: "ASTRA_CONNECT_TIMEOUT",
} as const;

/**
 * Options for `initProcessGroup` from the environment; null for a process that no launcher started, or that is alone.
 * RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT have precedence over other variables of a launcher.
 *
 * @throws UsageError for variables that contradict each other or are incomplete
 */
export function launchedOptions(environment: Environment = process.env): ProcessGroupOptions | null {
  const found = LAUNCHERS.find(
    ({ rank, worldSize }) => isSet(environment, rank) && (rank === "RANK" || isSet(environment, worldSize)),
  );
  if (found === undefined) return null;
  const worldSize = whole(environment, found.worldSize, 1);
  const rank = whole(environment, found.rank, 0);
  if (rank >= worldSize) {
    throw new UsageError(
      "rank-beyond-world-size",
      `distributed: ${found.rank} is ${rank}, and ${found.worldSize} is ${worldSize}; ranks count from 0`,
    );
  }
  if (worldSize === 1) return null;
  const { localSize } = found;
  const isLocal =
    localSize !== undefined &&
    isSet(environment, localSize) &&
    whole(environment, localSize, 1) === worldSize;
  const usesAgent =
    environment["TORCHELASTIC_USE_AGENT_STORE"] === "True" &&
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] !== "1";
  const seconds = Object.entries(TIMEOUTS).flatMap(([name, variable]) =>
    isSet(environment, variable) ? [[name, whole(environment, variable, 1)]] : [],
  );
  return {
    rank,
    worldSize,
    masterAddress: masterAddress(environment, found, isLocal),
    masterPort: isSet(environment, "MASTER_PORT")
      ? whole(environment, "MASTER_PORT", 1)
      : (found.port?.(environment) ?? DEFAULT_PORT),
    servesRendezvous: !usesAgent,
    // A launcher's rendezvous outlives the processes that it restarts.
    attempt: environment["TORCHELASTIC_RESTART_COUNT"] ?? environment["SLURM_RESTART_COUNT"] ?? "",
    ...(Object.fromEntries(seconds) as Partial<ProcessGroupOptions>),
  };
}

interface Launcher {
  /** Names of its variables. */
  readonly rank: string;
  readonly worldSize: string;
  /** Of the processes on this machine. */
  readonly localSize?: string;
  /** Address of rank 0, if MASTER_ADDR and MASTER_PORT are not set. */
  port?(environment: Environment): number;
  address?(environment: Environment): string;
}

const LAUNCHERS: readonly Launcher[] = [
  {
    // torchrun, and launchers that set the same variables.
    rank: "RANK",
    worldSize: "WORLD_SIZE",
    localSize: "LOCAL_WORLD_SIZE",
  },
  {
    // Slurm. Set by srun for its tasks, and not for the batch script, which also has a SLURM_PROCID.
    rank: "SLURM_PROCID",
    worldSize: "SLURM_STEP_NUM_TASKS",
    // Two jobs on one node must not share a port; these ports are below the ephemeral range.
    port: (environment) => 12_000 + (Number(environment["SLURM_JOB_ID"] ?? 0) % 18_000),
    address: (environment) => firstNode(environment["SLURM_STEP_NODELIST"] ?? ""),
  },
  {
    // Open MPI.
    rank: "OMPI_COMM_WORLD_RANK",
    worldSize: "OMPI_COMM_WORLD_SIZE",
    localSize: "OMPI_COMM_WORLD_LOCAL_SIZE",
  },
  {
    // MPICH and Intel MPI.
    rank: "PMI_RANK",
    worldSize: "PMI_SIZE",
    localSize: "MPI_LOCALNRANKS",
  },
];

function masterAddress(environment: Environment, launcher: Launcher, isLocal: boolean): string {
  const address = environment["MASTER_ADDR"] || launcher.address?.(environment);
  if (address !== undefined && address !== "") return address;
  if (isLocal) return "127.0.0.1";
  throw new UsageError(
    "missing-master-address",
    `distributed: ${launcher.rank} indicates one of several processes, but MASTER_ADDR is not set; set MASTER_ADDR ` +
      "to the machine of rank 0, and MASTER_PORT to a free port of it",
  );
}

/** The first machine of a list such as "node[01-03,7],other". */
export function firstNode(list: string): string {
  const [, prefix = "", numbers, suffix = ""] = /^([^,[]*)(?:\[([^\]]*)\]([^,]*))?/u.exec(list) ?? [];
  return numbers === undefined ? prefix : `${prefix}${numbers.split(/[,-]/u)[0]}${suffix}`;
}

const isSet = (environment: Environment, name: string) => (environment[name] ?? "") !== "";

function whole(environment: Environment, name: string, least: number): number {
  const text = environment[name];
  const value = Number(text);
  if (/^\d+$/u.test(text ?? "") && Number.isSafeInteger(value) && value >= least) return value;
  throw new UsageError(
    "out-of-range",
    `distributed: the variable ${name} must be a whole number of at least ${least}, got ${describeValue(text)}`,
  );
}
