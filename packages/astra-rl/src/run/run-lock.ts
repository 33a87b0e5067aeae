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
import { join, resolve } from "node:path";
import { Worker } from "node:worker_threads";
import { explainDiskErrors, UsageError } from "@astra-rl/torch";

/** The file in a run folder that names the process which works in it. */
export const LOCK_FILE = "run.lock";

interface Holder {
  pid: number;
  host: string;
  /** When the process began, as the system counts; tells it from a later one with the same number. null: not known. */
  began: string | null;
  /** Among whose processes `pid` is counted: the boot, and the namespace (a container has its own). null: not known. */
  among: string | null;
}

/** Younger than this, a lock that cannot be read may still be in the making. Milliseconds. */
const IN_THE_MAKING = 10_000;

/** How often a holder gives a sign of life, and how long after the last one it counts as gone. Milliseconds. */
const RENEWED_EVERY = 5_000;
const LEASE = 60_000;

export interface RunLockOptions {
  /** Called when the lock of a dead process was taken over. */
  onTakeover?: (line: string) => void;
}

/**
 * Keeps two processes from working in one run folder. The lock is a file with the holder's number and host: a process
 * that is killed leaves it, and the next one that can tell that its holder is dead takes it over.
 *
 * - Among the same processes (one boot, one namespace) the system says who lives.
 * - Among others of a host of the same name (a container that shares it, a machine after its restart) it does not. There
 *   the lock is a lease: its holder renews it, from a thread of its own, and it is taken over a minute after the last time.
 * - On another host it cannot be told, so that the user decides.
 *
 * Since a holder may have been stopped for longer than its lease, and a folder may be renamed while a run is at work in it,
 * whoever writes calls `check` first.
 */
export class RunLock {
  readonly #folder: string;
  readonly #path: string;
  readonly #text: string;
  readonly #renewal: Renewal;
  #held = true;
  readonly #atExit = () => this.release();

  private constructor(folder: string, text: string, renewal: Renewal) {
    this.#folder = folder;
    // A process may change its working directory.
    this.#path = resolve(folder, LOCK_FILE);
    this.#text = text;
    this.#renewal = renewal;
    process.once("exit", this.#atExit);
  }

  /**
   * @param folder a run folder that exists
   * @throws UsageError while another process holds it, or something that is no file has the lock's name
   */
  static take(folder: string, { onTakeover }: RunLockOptions = {}): RunLock {
    const path = join(folder, LOCK_FILE);
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
        if (renewal !== null) return new RunLock(folder, text, renewal);
        continue;
      }
      const found = readIfThere(path);
      if (found === null) continue;
      const holder = parse(found);
      const life = holder === null ? null : lifeOf(holder, path);
      if (holder === null ? isYoung(path) : life!.isAlive)
        throw new UsageError(refusal(folder, holder, life));
      if (!removeStale(path, found)) continue;
      if (holder !== null) {
        onTakeover?.(`${folder}: taking over from process ${holder.pid} ${life!.words}`);
      }
    }
  }

  /**
   * Asked before every write.
   *
   * @throws UsageError where the folder no longer is this process's: it was renamed or replaced, or its lock was deleted,
   * or taken over while this process was stopped
   */
  check(): void {
    let found = this.#found();
    // A contender may have it aside for a moment.
    for (let tried = 0; found === null && tried < 10; tried += 1) {
      pause(10);
      found = this.#found();
    }
    if (found === this.#text) return;
    const place = this.#renewal.place();
    const moved = place !== null && place !== this.#path ? place.slice(0, -LOCK_FILE.length - 1) : null;
    const what =
      moved !== null
        ? `was renamed, to ${moved}`
        : found === null
          ? "was taken away, or its run.lock was deleted"
          : "is now another process's, which took it over";
    throw new UsageError(
      `${this.#folder}: ${what}, while this run was at work in it; stopped before anything was written to another place. ` +
        `Go on from its last checkpoint with --resume and --run-dir ${moved ?? "of the folder"}`,
    );
  }

  #found(): string | null {
    try {
      return isFile(this.#path) ? readIfThere(this.#path) : null;
    } catch {
      return null;
    }
  }

  /** Lets the next process in; a lock that somebody else has put in its place stays. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    process.off("exit", this.#atExit);
    const places = [this.#path, this.#renewal.place() ?? this.#path];
    this.#renewal.end();
    try {
      for (const place of places) {
        if (isFile(place) && readIfThere(place) === this.#text) rmSync(place, { force: true });
      }
    } catch {
      // A folder that was taken away, or a disk that is gone: there is nothing left to let go of.
    }
  }
}

/** Milliseconds in which nothing else happens. */
const pause = (milliseconds: number) =>
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);

/** Gives signs of life: the time of the lock's last change, set by a thread that no computation holds up. */
class Renewal {
  readonly #handle: number;
  readonly #worker: Worker;

  /**
   * Held open, so that it is this lock that is renewed, wherever it goes, and never another of its name. A contender that takes it
   * for a stale one moves it aside for a moment and puts it back.
   *
   * @returns null where it stays away
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

  private constructor(handle: number) {
    this.#handle = handle;
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
      workerData: { handle: this.#handle, every: RENEWED_EVERY },
      resourceLimits: { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 4, stackSizeMb: 1 },
    });
    // Without it the lease runs out: `check` finds whoever has taken over.
    this.#worker.on("error", () => {});
    this.#worker.unref();
  }

  /** Where the lock lies now, as Linux tells it; null elsewhere, or where it lies nowhere. */
  place(): string | null {
    try {
      const place = readlinkSync(`/proc/self/fd/${this.#handle}`);
      return statSync(place, { throwIfNoEntry: false }) === undefined ? null : place;
    } catch {
      return null;
    }
  }

  end(): void {
    void this.#worker.terminate();
    closeSync(this.#handle);
  }
}

/** Puts the whole lock there at once, unless there is one. */
function create(path: string, text: string): boolean {
  const own = `${path}.${process.pid}-${randomBytes(4).toString("hex")}.partial`;
  writeFileSync(own, text, { flag: "wx" });
  try {
    linkSync(own, path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") return false;
    if (code === "ENOENT" || code === "ENOSPC") throw error;
    // File systems without hard links: the lock is there a moment before its content is.
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

/** Removes the lock that was read as `text`; false where another process was faster. */
function removeStale(path: string, text: string): boolean {
  const aside = `${path}.${process.pid}-${randomBytes(4).toString("hex")}.partial`;
  try {
    renameSync(path, aside);
  } catch {
    return false;
  }
  const same = readIfThere(aside) === text;
  // Between the look and the rename somebody may have taken it over: back it goes.
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

function isFile(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

/** A link that leads nowhere would be there and not there, and a pipe never ends. */
function requireFile(path: string): void {
  const stats = explainDiskErrors(path, () => lstatSync(path, { throwIfNoEntry: false }));
  if (stats === undefined || stats.isFile()) return;
  const kind = stats.isSymbolicLink() ? "a link" : stats.isDirectory() ? "a folder" : "a pipe or a device";
  throw new UsageError(`${path}: must be a file that a run has written, got ${kind}; delete it`);
}

function isYoung(path: string): boolean {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats !== undefined && Date.now() - stats.mtimeMs < IN_THE_MAKING;
}

/** Whether the holder of a lock lives. */
interface Life {
  isAlive: boolean;
  /** Behind its number: where it is, or what became of it. */
  words: string;
}

function lifeOf(holder: Holder, path: string): Life {
  // Whoever is on another host cannot be asked.
  if (holder.host !== hostname()) return { isAlive: true, words: `on ${holder.host}` };
  if (holder.among === null || holder.among === PROCESSES) {
    const isAlive = isRunning(holder);
    return { isAlive, words: isAlive ? `on ${holder.host}` : "on this host, which is no more" };
  }
  const silent = silence(path);
  const seconds = Math.max(0, Math.round(silent / 1000));
  const last = `last heard of ${seconds} s ago`;
  return {
    isAlive: silent < LEASE,
    words: `on ${holder.host}, in another container or since restarted, ${last}`,
  };
}

function isRunning({ pid, began }: Holder): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // A process of another user lives as well.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
  const now = beginningOf(pid);
  return began === null || now === null || began === now;
}

/** Milliseconds since a lock was renewed, by the clock of the file system that it lies on; 0 where it is gone. */
function silence(path: string): number {
  const own = `${path}.${process.pid}-${randomBytes(4).toString("hex")}.partial`;
  try {
    writeFileSync(own, "", { flag: "wx" });
    const renewed = statSync(path, { throwIfNoEntry: false });
    return renewed === undefined ? 0 : statSync(own).mtimeMs - renewed.mtimeMs;
  } finally {
    rmSync(own, { force: true });
  }
}

/** Among whose processes this one is counted; null where the system does not tell. */
const PROCESSES = ((): string | null => {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    return `${boot} ${readlinkSync("/proc/self/ns/pid")}`;
  } catch {
    return null;
  }
})();

/** When a process began, as Linux tells it, with the boot that it belongs to; null elsewhere. */
function beginningOf(pid: number): string | null {
  try {
    // A container may be shown the processes of another one, in which the same numbers are others'.
    if (readlinkSync("/proc/self") !== String(process.pid)) return null;
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const status = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name, in brackets, may hold anything; the beginning is the 20th word behind it.
    return `${boot} ${status.slice(status.lastIndexOf(")") + 2).split(" ")[19]}`;
  } catch {
    return null;
  }
}

function refusal(folder: string, holder: Holder | null, life: Life | null): string {
  const lock = join(folder, LOCK_FILE);
  if (holder === null || life === null) {
    return `${folder}: another process is about to use this run; if there is none, delete ${lock}`;
  }
  const { pid, host, among } = holder;
  const advice =
    host !== hostname()
      ? `wait for it; if it is no more, which cannot be seen from here, delete ${lock}`
      : among === null || among === PROCESSES
        ? "wait for it, or stop it"
        : `wait for it, or stop it; a minute after it was last heard of the run can be taken over`;
  return `${folder}: process ${pid} ${life.words} is using this run; ${advice}`;
}
