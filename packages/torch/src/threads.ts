/**
 * Threads: how many this machine has room for, and how they wait for each other. No addon is needed to know it, since
 * it has to be known before libtorch is loaded.
 */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The number of threads that the user asks of OpenMP or MKL, as libtorch reads it; null where they ask for none. A list
 * ("4,2") is for regions within regions: its first number counts.
 */
export function namedThreads(environment: Environment): number | null {
  for (const name of ["OMP_NUM_THREADS", "MKL_NUM_THREADS"]) {
    const count = /^\s*(\d+)\s*(?:,|$)/u.exec(environment[name] ?? "")?.[1];
    if (count !== undefined && Number(count) > 0) return Number(count);
  }
  return null;
}

/**
 * The most threads that operators may have: more than a machine of today has cores, so that a run may be repeated with the
 * number that it was begun with, and few enough that none of the runtimes breaks.
 */
export const mostThreads = (): number => Math.max(64, 2 * availableParallelism());

/** What the runtimes read when they are loaded. */
const THREAD_VARIABLES = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS"];

/**
 * The variables that ask for more threads than there may be, each with what stands for it: the runtimes end with a signal,
 * or spend minutes on threads that wait.
 */
export function boundedThreads(environment: Environment, most = mostThreads()): [string, string][] {
  return THREAD_VARIABLES.flatMap((name) => {
    const value = environment[name] ?? "";
    const counts = value.split(",");
    if (!counts.some((count) => /^\s*\d+\s*$/u.test(count) && Number(count) > most)) return [];
    return [[name, counts.map((count) => (Number(count) > most ? String(most) : count)).join(",")]];
  });
}

/** How long an idle thread spins before it sleeps: longer than 96 % of the gaps between parallel regions (docs/performance.md). */
const SPIN_MICROSECONDS = 350;

/**
 * Environment variables that make threads wait so long; read by the OpenMP runtimes when they are loaded. None for a
 * runtime that the user has told how to wait.
 *
 * @param pauseNanoseconds what one turn of GNU's waiting loop takes
 */
export function waitingVariables(environment: Environment, pauseNanoseconds: number): [string, string][] {
  const isSet = (name: string) => environment[name] !== undefined;
  if (isSet("OMP_WAIT_POLICY")) return [];
  const variables: [string, string][] = [];
  if (!isSet("GOMP_SPINCOUNT")) {
    const turns = Math.round((SPIN_MICROSECONDS * 1000) / Math.max(0.1, pauseNanoseconds));
    variables.push(["GOMP_SPINCOUNT", String(turns)]);
  }
  // LLVM's and Intel's: whole milliseconds in the older ones, 200 unless told otherwise.
  if (!isSet("KMP_BLOCKTIME") && !isSet("KMP_LIBRARY")) variables.push(["KMP_BLOCKTIME", "1"]);
  return variables;
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** The numbers of a list such as "0-3,8". */
function numbersOf(list: string): Set<number> {
  const numbers = new Set<number>();
  for (const part of list.trim().split(",")) {
    const [first, last = first] = part.split("-").map(Number);
    for (let number = first!; number <= last!; number++) numbers.add(number);
  }
  return numbers;
}

/**
 * Cores that can compute at the same time: the second hyper-thread of a core adds nothing to matrix products. Only those
 * that this process may run on, and no more than the time that its control groups give it.
 *
 * @param quota processors' worth of time; 0 without a limit
 * @param files other texts than the system's, for tests
 */
export function computingCores(
  quota: number,
  { cpuinfo = readText("/proc/cpuinfo"), status = readText("/proc/self/status") } = {},
): number {
  const allowed = /^Cpus_allowed_list:\s*(\S+)/mu.exec(status)?.[1];
  const mayRun = allowed === undefined ? null : numbersOf(allowed);
  const cores = new Set<string>();
  for (const block of cpuinfo.split("\n\n")) {
    const field = (name: string) => new RegExp(`^${name}\\s*:\\s*(\\d+)`, "mu").exec(block)?.[1];
    const core = field("core id");
    if (core === undefined || mayRun?.has(Number(field("processor"))) === false) continue;
    cores.add(`${field("physical id") ?? 0}:${core}`);
  }
  const usable = cores.size > 0 ? cores.size : (mayRun?.size ?? availableParallelism());
  // A thread more than there is time for would be stopped in every period, and all others would wait for it.
  return Math.max(1, quota > 0 ? Math.min(usable, Math.floor(quota)) : usable);
}
