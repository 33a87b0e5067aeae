import { randomBytes } from "node:crypto";
import {
  closeSync,
  linkSync,
  lstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { hostname } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { Worker } from "node:worker_threads";
import { explainDiskErrors, UsageError } from "@astra-rl/base";
import { beginningOf, isRunning, PROCESSES } from "./process-identity.js";

/** The lock file in a run folder; it names the process that holds the lock. */
export const LOCK_FILE = "run.lock";

interface Holder {
  pid: number;
  host: string;
  /**
   * Start time of the process, in the system's units; distinguishes it from a later process with the same pid. null:
   * unknown.
   */
  began: string | null;
  /** Scope of `pid`: the boot, and the PID namespace (a container has its own). null: unknown. */
  among: string | null;
}

/** An unreadable lock younger than this may still be being written. Milliseconds. */
const CREATION_GRACE_MS = 10_000;

/** How often a holder renews its lease, and how long after the last renewal it counts as dead. Milliseconds. */
const RENEWED_EVERY = 5_000;
const LEASE = 60_000;

export interface RunLockOptions {
  /** Called after taking over the lock of a dead process. */
  onTakeover?: (line: string) => void;
  /** What is locked: a run folder, with `LOCK_FILE` in it, or a ledger, with a lock file beside it. */
  kind?: "run" | "ledger";
}

interface Locked {
  place: string;
  kind: NonNullable<RunLockOptions["kind"]>;
  /** Path of the lock file. */
  lock: string;
}

/**
 * Keeps two processes from using one run folder, or one ledger. The lock is a file with the holder's pid and host. A killed process
 * leaves it behind; the next process takes it over if it can tell that the holder is dead.
 *
 * - In the same boot and PID namespace, the system knows which processes are alive.
 * - In another one on a host of the same name (a container that shares it, a restarted machine) it does not. There
 *   the lock is a lease: its holder renews it from a separate thread, and it can be taken over a minute after the
 *   last renewal.
 * - On another host this cannot be determined; the user has to decide.
 *
 * A holder may be suspended for longer than its lease, and a folder may be renamed during a run: call `check` before
 * every write.
 */
export class RunLock {
  readonly #path: string;
  #held = true;
  readonly #atExit = () => this.release();

  private constructor(
    private readonly locked: Locked,
    private readonly text: string,
    private readonly renewal: Renewal,
  ) {
    // Absolute, because a process may change its working directory.
    this.#path = resolve(locked.lock);
    process.once("exit", this.#atExit);
  }

  /**
   * @param place a run folder that exists, or the path of a ledger in a folder that exists
   * @throws UsageError if another process holds the lock, or if a non-file has the lock's name
   */
  static take(place: string, { onTakeover, kind = "run" }: RunLockOptions = {}): RunLock {
    const path = kind === "run" ? join(place, LOCK_FILE) : `${place}.lock`;
    const locked: Locked = { place, kind, lock: path };
    const me: Holder = {
      pid: process.pid,
      host: hostname(),
      began: beginningOf(process.pid),
      among: PROCESSES,
    };
    const id = randomBytes(8).toString("hex");
    const text = `${JSON.stringify({ ...me, taken: new Date().toISOString(), id })}\n`;
    for (;;) {
      requireFile(path);
      if (explainDiskErrors(path, () => create(path, text))) {
        const renewal = explainDiskErrors(path, () => Renewal.of(resolve(path)));
        if (renewal !== null) return new RunLock(locked, text, renewal);
        continue;
      }
      const found = readIfThere(path);
      if (found === null) continue;
      const holder = parse(found);
      const life = holder === null ? null : lifeOf(holder, path);
      if (holder === null ? isYoung(path) : life!.isAlive)
        throw new UsageError("lock-held", refusal(locked, holder, life));
      if (!removeStale(path, found)) continue;
      if (holder !== null) {
        onTakeover?.(`${place}: taking over the lock of process ${holder.pid} ${life!.words}`);
      }
    }
  }

  /** Whether a process that may be alive holds the lock of a folder. */
  static isHeld(folder: string): boolean {
    const path = join(folder, LOCK_FILE);
    const text = textOf(path);
    const holder = text === null ? null : parse(text);
    return holder !== null && lifeOf(holder, path).isAlive;
  }

  /**
   * Called before every write.
   *
   * @throws UsageError if this process no longer holds what it locked: the folder was renamed or replaced, or its lock was
   * deleted, or taken over while this process was suspended
   */
  check(): void {
    let found = this.#found();
    // Another process may have moved it aside for a moment.
    for (let tried = 0; found === null && tried < 10; tried += 1) {
      pause(10);
      found = this.#found();
    }
    if (found === this.text) return;
    const { place, kind } = this.locked;
    const now = this.renewal.place();
    const moved = now !== null && now !== this.#path ? dirname(now) : null;
    const what =
      moved !== null
        ? `was renamed, to ${moved}`
        : found === null
          ? `was moved away, or its ${basename(this.#path)} was deleted`
          : "was taken over by another process";
    const [user, remedy] =
      kind === "run"
        ? ["run", `Resume from its last checkpoint with --resume and --run-dir ${moved ?? "of the folder"}`]
        : ["command", "Run it again"];
    throw new UsageError(
      "folder-moved",
      `${place}: ${what}, while this ${user} was using it; stopped before writing anything elsewhere. ${remedy}`,
    );
  }

  #found(): string | null {
    try {
      return textOf(this.#path);
    } catch {
      return null;
    }
  }

  /** Releases the lock; a lock that another process has put in its place stays. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    process.off("exit", this.#atExit);
    const places = [this.#path, this.renewal.place() ?? this.#path];
    this.renewal.end();
    try {
      for (const place of places) {
        if (textOf(place) === this.text) rmSync(place, { force: true });
      }
    } catch {
      // The folder or the disk is gone: there is nothing left to release.
    }
  }
}

/** Blocks the thread. */
const pause = (milliseconds: number) =>
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);

/** Renews the lease by setting the lock's modification time, from a thread that computation does not block. */
class Renewal {
  readonly #worker: Worker;

  /**
   * Keeps the file open, so that exactly this lock is renewed even if it is moved, never another one of the same
   * name. A process that takes it for stale moves it aside for a moment and puts it back.
   *
   * @returns null if the file stays away
   */
  static of(path: string): Renewal | null {
    for (let tried = 0; tried < 100; tried += 1) {
      try {
        return new Renewal(openSync(path, "r+"));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
        pause(10);
      }
    }
    return null;
  }

  private constructor(private readonly handle: number) {
    const source = `
      const { workerData: { handle, every } } = require("node:worker_threads");
      const { futimesSync } = require("node:fs");
      setInterval(() => {
        try { futimesSync(handle, new Date(), new Date()); } catch {}
      }, every);`;
    this.#worker = new Worker(source, {
      eval: true,
      execArgv: [],
      env: {},
      workerData: { handle: this.handle, every: RENEWED_EVERY },
      resourceLimits: { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 4, stackSizeMb: 1 },
    });
    // Without the worker the lease expires; `check` notices if another process takes over.
    this.#worker.on("error", () => {});
    this.#worker.unref();
  }

  /** The lock's current path, on Linux; null on other systems, or if the file was deleted. */
  place(): string | null {
    try {
      const place = readlinkSync(`/proc/self/fd/${this.handle}`);
      return statSync(place, { throwIfNoEntry: false }) === undefined ? null : place;
    } catch {
      return null;
    }
  }

  end(): void {
    void this.#worker.terminate();
    closeSync(this.handle);
  }
}

/** The name of a file beside the lock, which a killed process may leave. */
const partial = (path: string) => `${path}.${process.pid}-${randomBytes(4).toString("hex")}.partial`;

/** Creates the lock atomically, unless there is one. */
function create(path: string, text: string): boolean {
  const own = partial(path);
  writeFileSync(own, text, { flag: "wx" });
  try {
    linkSync(own, path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") return false;
    if (code === "ENOENT" || code === "ENOSPC") throw error;
    // File systems without hard links: the lock exists a moment before its content.
    try {
      writeFileSync(path, text, { flag: "wx" });
      return true;
    } catch (second) {
      if ((second as NodeJS.ErrnoException).code === "EEXIST") return false;
      throw second;
    }
  } finally {
    rmSync(own, { force: true });
  }
}

/** Removes the lock with content `text`; false if another process was faster. */
function removeStale(path: string, text: string): boolean {
  const aside = partial(path);
  try {
    renameSync(path, aside);
  } catch {
    return false;
  }
  const same = readIfThere(aside) === text;
  // Another process may have taken it over between the check and the rename: put it back.
  if (!same) create(path, readIfThere(aside) ?? "");
  rmSync(aside, { force: true });
  return same;
}

function readIfThere(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

function parse(text: string): Holder | null {
  try {
    const { pid, host, began = null, among = null } = JSON.parse(text) as Partial<Holder>;
    return typeof pid === "number" && typeof host === "string" ? { pid, host, began, among } : null;
  } catch {
    return null;
  }
}

/** The text of a file; null where there is none, or something else of that name. */
const textOf = (path: string): string | null =>
  lstatSync(path, { throwIfNoEntry: false })?.isFile() === true ? readIfThere(path) : null;

/** A dangling link would both exist and not exist, and reading a pipe would never end. */
function requireFile(path: string): void {
  const stats = explainDiskErrors(path, () => lstatSync(path, { throwIfNoEntry: false }));
  if (stats === undefined || stats.isFile()) return;
  const kind = stats.isSymbolicLink() ? "a link" : stats.isDirectory() ? "a folder" : "a pipe or a device";
  throw new UsageError(
    "not-a-file",
    `${path}: must be a file that a run has written, got ${kind}; delete it`,
  );
}

function isYoung(path: string): boolean {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats !== undefined && Date.now() - stats.mtimeMs < CREATION_GRACE_MS;
}

/** Whether the holder of a lock is alive. */
interface Life {
  isAlive: boolean;
  /** Follows the pid in messages: where the process is, or what happened to it. */
  words: string;
}

function lifeOf(holder: Holder, path: string): Life {
  // Processes on another host cannot be checked.
  if (holder.host !== hostname()) return { isAlive: true, words: `on ${holder.host}` };
  if (holder.among === null || holder.among === PROCESSES) {
    const isAlive = isRunning(holder);
    return { isAlive, words: isAlive ? `on ${holder.host}` : "on this host, which has exited" };
  }
  const silent = silence(path);
  const seconds = Math.max(0, Math.round(silent / 1000));
  const last = `last renewed ${seconds} s ago`;
  return {
    isAlive: silent < LEASE,
    words: `on ${holder.host}, in another container or since restarted, ${last}`,
  };
}

/** Milliseconds since a lock was renewed, by the clock of its file system; 0 if the lock is gone. */
function silence(path: string): number {
  const own = partial(path);
  try {
    writeFileSync(own, "", { flag: "wx" });
    const renewed = statSync(path, { throwIfNoEntry: false });
    return renewed === undefined ? 0 : statSync(own).mtimeMs - renewed.mtimeMs;
  } finally {
    rmSync(own, { force: true });
  }
}

function refusal({ place, kind, lock }: Locked, holder: Holder | null, life: Life | null): string {
  if (holder === null || life === null) {
    return `${place}: another process is locking this ${kind}; if there is none, delete ${lock}`;
  }
  const { pid, host, among } = holder;
  const advice =
    host !== hostname()
      ? `wait for it; if it has exited, which cannot be determined from this host, delete ${lock}`
      : among === null || among === PROCESSES
        ? "wait for it, or stop it"
        : `wait for it, or stop it; its lock can be taken over a minute after the last renewal`;
  return `${place}: process ${pid} ${life.words} is using this ${kind}; ${advice}`;
}
