/**
 * The processes of one run, as in `torch.distributed`: one group in each process, with Gloo's collectives over TCP.
 *
 * Without `initProcessGroup`, a process forms a group by itself: rank 0 of 1, and every collective returns at once. All
 * ranks must call the same collectives in the same order. None blocks the event loop.
 */
import { createSocket } from "node:dgram";
import { lookup } from "node:dns/promises";
import { hostname } from "node:os";
import { deserialize, serialize } from "node:v8";
import { AstraError, describeValue, UsageError } from "@astra-rl/base";
import { bytesOf } from "./dtype.js";
import { allowedProcessors } from "./control-groups.js";
import { addon } from "./native.js";
import type { Tensor } from "./tensor.js";
import { allowedProcessorList, computingCores, namedThreads } from "./threads.js";

export { launchedOptions } from "./launcher.js";

export interface ProcessGroupOptions {
  /** Where rank 0 can be reached by all ranks. */
  masterAddress: string;
  masterPort: number;
  rank: number;
  worldSize: number;
  /**
   * Seconds after which a collective fails: longer than the longest time that a rank may have to wait for another.
   * Default 600.
   */
  timeout?: number;
  /** Seconds to wait for all ranks when the group is formed. Default 300. */
  connectTimeout?: number;
  /** Whether rank 0 serves the rendezvous; false where a launcher does so at that port. Default true. */
  servesRendezvous?: boolean;
  /** Names one start of the group at a rendezvous that outlives it. Default "". */
  attempt?: string;
  /**
   * Called when another rank has ended without `destroyProcessGroup`: with its number, or with null after
   * `announceFailure`. Must end the process; two seconds later it ends in any case, with exit code 1.
   */
  onLost?: (rank: number | null) => void;
}

interface ProcessGroup {
  readonly rank: number;
  readonly worldSize: number;
  readonly timeout: number;
}

const ALONE: ProcessGroup = { rank: 0, worldSize: 1, timeout: 0 };
let group: ProcessGroup = ALONE;

/** Milliseconds that a failed collective waits for the watch, which detects the exit of a rank itself. */
const LOST_FIRST = 1500;

/** Tensors travel in groups of about this size, since small ones are copied: large enough for full bandwidth. */
const BUCKET_BYTES = 25 * 2 ** 20;

/** This process's number in its group, from 0. */
export const rank = (): number => group.rank;

/** Number of processes in the group. */
export const worldSize = (): number => group.worldSize;

/** Joins the group. @throws AstraError if the ranks do not find each other within `connectTimeout` */
export async function initProcessGroup(options: ProcessGroupOptions): Promise<void> {
  const { masterAddress, masterPort, worldSize: size, timeout = 600, connectTimeout = 300 } = options;
  const { servesRendezvous = true, attempt = "" } = options;
  for (const [name, seconds] of Object.entries({ timeout, connectTimeout })) {
    if (seconds > 0 && seconds <= 10 ** 7) continue;
    throw new UsageError(
      "out-of-range",
      `distributed: ${name} must be between 0 and 10⁷ seconds, got ${describeValue(seconds)}`,
    );
  }
  if (group !== ALONE)
    throw new UsageError("already-joined", "distributed: this process has already joined a group");
  if (!servesRendezvous && addon().information().version.startsWith("1.")) {
    throw new UsageError(
      "incompatible-store",
      `distributed: torchrun's own store is incompatible with libtorch ${addon().information().version}; set ` +
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun, so that rank 0 has its own store",
    );
  }
  const where = `${masterAddress}:${masterPort}`;
  const own = `rank ${options.rank} of ${size}`;
  const master = await lookup(masterAddress).catch((cause: unknown) => {
    throw new AstraError(
      `distributed: ${own} cannot find the machine ${masterAddress}; check the address of rank 0 (MASTER_ADDR)`,
      { cause },
    );
  });
  const address = await addressTowards(master.address, master.family);
  const joined = new Promise<void>((resolve, reject) => {
    addon().joinGroup(
      masterAddress,
      masterPort,
      servesRendezvous && options.rank === 0,
      `astra-rl/${attempt}`,
      address,
      options.rank,
      size,
      Math.ceil(connectTimeout * 1000),
      Math.ceil(timeout * 1000),
      (lost) => options.onLost?.(lost < 0 ? null : lost),
      (error) => {
        if (error === null) resolve();
        else
          reject(
            new AstraError(`distributed: ${own} cannot join the group at ${where}: ${error}; ${ADVICE}`),
          );
      },
    );
  });
  await withDeadline(joined, connectTimeout, `distributed: ${own} has not joined the group at ${where}`);
  group = { rank: options.rank, worldSize: size, timeout };
  await checkEngines();
  await shareProcessors();
}

/** @throws AstraError for ranks with different libtorch versions, which would not compute the same */
async function checkEngines(): Promise<void> {
  const { version, isa } = addon().information();
  const all = await allGatherObject({ version, isa });
  for (const name of ["version", "isa"] as const) {
    const other = all.findIndex((engine) => engine[name] !== all[0]![name]);
    if (other < 0) continue;
    const what = name === "version" ? "libtorch" : "the instruction set";
    throw new AstraError(
      `distributed: rank ${other} has ${what} ${all[other]![name]}, and rank 0 ${all[0]![name]}; all ranks must compute ` +
        `alike${name === "isa" ? ": set ASTRA_ISA to what all machines have" : ""}`,
    );
  }
}

/** Divides the processors of a machine among the ranks that may run on the same ones; OMP_NUM_THREADS wins. */
async function shareProcessors(): Promise<void> {
  const own = `${hostname()} ${allowedProcessorList()}`;
  const all = await allGatherObject(own);
  if (namedThreads(process.env) !== null) return;
  const sharing = all.filter((other) => other === own).length;
  addon().setThreads(Math.max(1, Math.floor(computingCores(allowedProcessors()) / sharing)));
}

const ADVICE =
  "check that all ranks were started, that they share address, port and world size, that nothing else uses the port, and " +
  "that all machines have the same version of libtorch";

/** The local address of packets to another machine; others reach this process there. */
function addressTowards(address: string, family: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(family === 6 ? "udp6" : "udp4");
    socket.once("error", (cause) => {
      socket.close();
      reject(new AstraError(`distributed: ${address} cannot be reached: ${cause.message}`, { cause }));
    });
    // Sends nothing: any port works.
    socket.connect(9, address, () => {
      const own = socket.address().address;
      socket.close();
      resolve(own);
    });
  });
}

async function withDeadline(joined: Promise<void>, seconds: number, what: string): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new AstraError(`${what} within ${seconds} s; ${ADVICE}`));
    }, seconds * 1000);
  });
  try {
    await Promise.race([joined, deadline]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Replaces each tensor by its sum over all ranks. Tensors are floating, with the same shapes on all ranks; they are added
 * in float32, or in float64 if one is. The same ranks always give the same bits, and all ranks get the same.
 */
export async function allReduce_(tensors: readonly Tensor[]): Promise<void> {
  if (group.worldSize === 1) return;
  for (const bucket of buckets(tensors)) {
    await settled((callback) => addon().allReduce(bucket, callback));
  }
}

/** Replaces each tensor by that of the rank `root`. */
export async function broadcast_(tensors: readonly Tensor[], root = 0): Promise<void> {
  if (group.worldSize === 1) return;
  for (const bucket of buckets(tensors)) {
    await settled((callback) => addon().broadcast(bucket, root, callback));
  }
}

/** The values of all ranks, by rank. Values must be structured-cloneable; numbers arrive with all their bits. */
export async function allGatherObject<T>(value: T): Promise<T[]> {
  if (group.worldSize === 1) return [value];
  let bytes: Uint8Array;
  try {
    bytes = serialize(value);
  } catch (cause) {
    throw new UsageError(
      "not-transferable",
      `distributed: a value cannot be sent between processes: ${(cause as Error).message}; use plain data`,
      { cause },
    );
  }
  const all = await settled<Uint8Array[]>((callback) => addon().allGather(bytes, callback));
  return all.map((each) => deserialize(each) as T);
}

/** The value of rank 0, on all ranks. */
export async function fromRankZero<T>(value: T): Promise<T> {
  return (await allGatherObject(group.rank === 0 ? value : null))[0] as T;
}

/** Returns when all ranks have called it. */
export async function barrier(): Promise<void> {
  await allGatherObject(null);
}

/** Leaves the group once all ranks have called it, so that no rank mistakes the exit of another for a failure. */
export async function destroyProcessGroup(): Promise<void> {
  if (group.worldSize > 1) {
    addon().leaveGroup();
    await barrier();
  }
  // Not ALONE itself: a process joins only one group, as the addon never frees it.
  group = { ...ALONE };
}

/** Ends the other ranks, since this one exits and has reported why. */
export function announceFailure(): void {
  if (group.worldSize > 1) addon().announceFailure();
}

function settled<T = void>(
  start: (callback: (error: string | null, result: unknown) => void) => void,
): Promise<T> {
  const { rank: own, worldSize: size, timeout } = group;
  return new Promise((resolve, reject) => {
    start((error, result) => {
      if (error === null) resolve(result as T);
      else {
        // If a rank has exited, `onLost` reports which, and ends this process.
        setTimeout(() => {
          reject(
            new AstraError(
              `distributed: rank ${own} of ${size} waited for another rank that has ended, or that did not answer within ` +
                `${timeout} s (${error.split("\n")[0]})`,
            ),
          );
        }, LOST_FIRST);
      }
    });
  });
}

/** Handles in groups of about BUCKET_BYTES, in order: the layout determines the last bits of a sum. */
function buckets(tensors: readonly Tensor[]): number[][] {
  const all: number[][] = [];
  let space = 0;
  for (const each of tensors) {
    const bytes = each.numel() * bytesOf(each.dtype);
    if (all.length === 0 || bytes > space) {
      all.push([]);
      space = BUCKET_BYTES;
    }
    all.at(-1)!.push(each.handle);
    space -= bytes;
  }
  return all;
}
