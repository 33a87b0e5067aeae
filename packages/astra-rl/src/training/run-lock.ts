import { randomBytes } from "node:crypto";
import { linkSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { explainDiskErrors, UsageError } from "@astra-rl/torch";

/** The file in a run folder that names the process which works in it. */
export const LOCK_FILE = "run.lock";

interface Holder {
  pid: number;
  host: string;
  /** When the process began, as the system counts; tells it from a later one with the same number. null: not known. */
  began: string | null;
}

/** Younger than this, a lock that cannot be read may still be in the making. Milliseconds. */
const IN_THE_MAKING = 10_000;

export interface RunLockOptions {
  /** Told when the lock of a process that is no more was taken over. */
  onTakeover?: (line: string) => void;
}

/**
 * Keeps two processes from working in one run folder. The lock is a file with the holder's number and host: a process
 * that is killed leaves it, and the next on the same host takes it over. On another host nobody can tell whether the
 * holder lives, so there a user has to.
 */
export class RunLock {
  readonly #path: string;
  readonly #text: string;
  #held = true;
  readonly #atExit = () => this.release();

  private constructor(path: string, text: string) {
    this.#path = path;
    this.#text = text;
    process.once("exit", this.#atExit);
  }

  /**
   * @param folder a run folder that exists
   * @throws UsageError while another process holds it
   */
  static take(folder: string, { onTakeover }: RunLockOptions = {}): RunLock {
    const path = join(folder, LOCK_FILE);
    const me: Holder = { pid: process.pid, host: hostname(), began: beginningOf(process.pid) };
    const text = `${JSON.stringify({ ...me, taken: new Date().toISOString() })}\n`;
    for (;;) {
      if (explainDiskErrors(path, () => create(path, text))) return new RunLock(path, text);
      const found = readIfThere(path);
      if (found === null) continue;
      const holder = parse(found);
      if (holder === null ? isYoung(path) : isAlive(holder)) throw new UsageError(refusal(folder, holder));
      if (!removeStale(path, found)) continue;
      if (holder !== null) {
        onTakeover?.(`${folder}: taking over from process ${holder.pid} on this host, which is no more`);
      }
    }
  }

  /** Lets the next process in; a lock that somebody else has put in its place stays. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    process.off("exit", this.#atExit);
    try {
      if (readIfThere(this.#path) === this.#text) rmSync(this.#path, { force: true });
    } catch {
      // A folder that was taken away, or a disk that is gone: there is nothing left to let go of.
    }
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
    const { pid, host, began = null } = JSON.parse(text) as Partial<Holder>;
    return typeof pid === "number" && typeof host === "string" ? { pid, host, began } : null;
  } catch {
    return null;
  }
}

function isYoung(path: string): boolean {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats !== undefined && Date.now() - stats.mtimeMs < IN_THE_MAKING;
}

function isAlive({ pid, host, began }: Holder): boolean {
  // Whoever is on another host cannot be asked.
  if (host !== hostname()) return true;
  try {
    process.kill(pid, 0);
  } catch (error) {
    // A process of another user lives as well.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
  const now = beginningOf(pid);
  return began === null || now === null || began === now;
}

/** When a process began, as Linux tells it, with the boot that it belongs to; null elsewhere. */
function beginningOf(pid: number): string | null {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const status = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name, in brackets, may hold anything; the beginning is the 20th word behind it.
    return `${boot} ${status.slice(status.lastIndexOf(")") + 2).split(" ")[19]}`;
  } catch {
    return null;
  }
}

function refusal(folder: string, holder: Holder | null): string {
  const lock = join(folder, LOCK_FILE);
  if (holder === null) {
    return `${folder}: another process is about to use this run; if there is none, delete ${lock}`;
  }
  const { pid, host } = holder;
  const advice =
    host === hostname()
      ? "wait for it, or stop it"
      : `wait for it; if it is no more, which cannot be seen from here, delete ${lock}`;
  return `${folder}: process ${pid} on ${host} is using this run; ${advice}`;
}
