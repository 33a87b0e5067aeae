/**
 * How many threads this machine has room for, and how they wait for each other. Works without the addon, because it is
 * needed before libtorch is loaded.
 */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The number of threads that the user sets for OpenMP or MKL, as libtorch reads it; null if unset. In a list ("4,2")
 * for nested parallel regions, the first number counts.
 */
export function namedThreads(environment: Environment): number | null {
  for (const name of ["OMP_NUM_THREADS", "MKL_NUM_THREADS"]) {
    const count = /^\s*(\d+)\s*(?:,|$)/u.exec(environment[name] ?? "")?.[1];
    if (count !== undefined && Number(count) > 0) return Number(count);
  }
  return null;
}

/**
 * Maximum number of threads for operators: more than today's machines have cores, so that a run can be repeated
 * elsewhere with the same number, and few enough for every runtime.
 */
export const mostThreads = (): number => Math.max(64, 2 * availableParallelism());

/** Read by the runtimes when they are loaded. */
const THREAD_VARIABLES = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS"];

/**
 * The variables that exceed the maximum number of threads, each with a reduced value: runtimes would crash, or spend
 * minutes on waiting threads.
 */
export function boundedThreads(environment: Environment, most = mostThreads()): [string, string][] {
  return THREAD_VARIABLES.flatMap((name) => {
    const value = environment[name] ?? "";
    const counts = value.split(",");
    if (!counts.some((count) => /^\s*\d+\s*$/u.test(count) && Number(count) > most)) return [];
    return [[name, counts.map((count) => (Number(count) > most ? String(most) : count)).join(",")]];
  });
}

/**
 * How long an idle thread spins before it sleeps: longer than 96 % of the gaps between parallel regions
 * (docs/performance.md).
 */
const SPIN_MICROSECONDS = 350;

/**
 * Environment variables that set this spin time; read by the OpenMP runtimes when they are loaded. None for a runtime
 * whose waiting the user has configured.
 *
 * @param pauseNanoseconds duration of one iteration of GNU's spin loop
 */
export function waitingVariables(environment: Environment, pauseNanoseconds: number): [string, string][] {
  const isSet = (name: string) => environment[name] !== undefined;
  if (isSet("OMP_WAIT_POLICY")) return [];
  const variables: [string, string][] = [];
  if (!isSet("GOMP_SPINCOUNT")) {
    const turns = Math.round((SPIN_MICROSECONDS * 1000) / Math.max(0.1, pauseNanoseconds));
    variables.push(["GOMP_SPINCOUNT", String(turns)]);
  }
  // LLVM's and Intel's runtimes: older versions take integer milliseconds; the default is 200.
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

/** The processors that this process may run on, as a list such as "0-3,8"; undefined if unknown. */
export const allowedProcessorList = (status = readText("/proc/self/status")): string | undefined =>
  /^Cpus_allowed_list:\s*(\S+)/mu.exec(status)?.[1];

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
 * Number of cores that can compute at the same time: a second hyper-thread per core adds nothing to matrix products.
 * Counts only cores that this process may run on, and at most its control groups' processor quota.
 *
 * @param quota processor time, in processors; 0 without a limit
 * @param files replace the system's files in tests
 */
export function computingCores(
  quota: number,
  { cpuinfo = readText("/proc/cpuinfo"), status = readText("/proc/self/status") } = {},
): number {
  const allowed = allowedProcessorList(status);
  const mayRun = allowed === undefined ? null : numbersOf(allowed);
  const cores = new Set<string>();
  for (const block of cpuinfo.split("\n\n")) {
    const field = (name: string) => new RegExp(`^${name}\\s*:\\s*(\\d+)`, "mu").exec(block)?.[1];
    const core = field("core id");
    if (core === undefined || mayRun?.has(Number(field("processor"))) === false) continue;
    cores.add(`${field("physical id") ?? 0}:${core}`);
  }
  const usable = cores.size > 0 ? cores.size : (mayRun?.size ?? availableParallelism());
  // A thread beyond the quota would be suspended in every period, and all others would wait for it.
  return Math.max(1, quota > 0 ? Math.min(usable, Math.floor(quota)) : usable);
}
