import { existsSync, readFileSync, rmSync } from "node:fs";
import { UsageError } from "@astra-rl/base";
import { Journal } from "@astra-rl/records";
import { messageOf } from "@astra-rl/method";
import { z } from "zod";

const number = z.int().nonnegative();

const line = z.union([
  z.strictObject({ opened: number, model: z.string() }),
  /** Its id at the agent's server. */
  z.strictObject({ named: number, session: z.string() }),
  z.strictObject({ closed: number }),
  z.strictObject({ failed: number, error: z.string() }),
]);

/** A session that was not ended. */
export interface LeftOpen {
  entry: number;
  model: string;
  /** Its id at the agent's server; null if it has none, or if the process was killed before it was told. */
  session: string | null;
  /** Why ending it failed; null if it was not tried, as after a kill. */
  error: string | null;
}

/**
 * The sessions of a run's agents: each is in the file before it is used, and again when it has ended, so that those which a
 * killed process left open are known. Without a file it only counts.
 */
export class SessionLedger {
  readonly #file: Journal | null;
  readonly #open = new Map<number, LeftOpen>();
  #next = 0;

  /** Sessions that earlier processes left open. */
  readonly left: readonly LeftOpen[];

  /**
   * @param path null for none
   * @throws UsageError for a file that is no ledger
   */
  constructor(
    readonly model: string,
    readonly path: string | null = null,
  ) {
    this.#file = path === null ? null : new Journal(path);
    if (path !== null && existsSync(path)) this.#read(path);
    this.left = [...this.#open.values()];
  }

  /** Sessions that are not ended now. */
  get notEnded(): readonly LeftOpen[] {
    return [...this.#open.values()];
  }

  /** Notes a session before it is started. @returns its number */
  open(): number {
    const entry = this.#next++;
    const { model } = this;
    this.#open.set(entry, { entry, model, session: null, error: null });
    this.#file?.append([JSON.stringify({ opened: entry, model })]);
    return entry;
  }

  /** Notes what its server calls it. */
  name(entry: number, session: string | undefined): void {
    const open = this.#open.get(entry);
    if (session === undefined || open === undefined) return;
    this.#open.set(entry, { ...open, session });
    this.#file?.append([JSON.stringify({ named: entry, session })]);
  }

  close(entry: number): void {
    this.#open.delete(entry);
    this.#file?.append([JSON.stringify({ closed: entry })]);
  }

  /** Ending it failed: it stays open. */
  fail(entry: number, cause: unknown): void {
    const error = messageOf(cause);
    const open = this.#open.get(entry);
    if (open !== undefined) this.#open.set(entry, { ...open, error });
    this.#file?.append([JSON.stringify({ failed: entry, error })]);
  }

  dispose(): void {
    this.#file?.close();
  }

  /** Removes its file if all sessions have ended, since it is only for those that are left. */
  remove(): void {
    if (this.path === null || this.#open.size > 0) return;
    this.dispose();
    rmSync(this.path, { force: true });
  }

  #read(path: string): void {
    const text = readFileSync(path, "utf8");
    const end = text.lastIndexOf("\n") + 1;
    // A kill may leave an unterminated line.
    this.#file!.cut({ bytes: Buffer.byteLength(text.slice(0, end)) });
    for (const [index, each] of text.slice(0, end).split("\n").slice(0, -1).entries()) {
      const entry = this.#parse(path, index + 1, each);
      if ("opened" in entry) {
        const { opened, model } = entry;
        this.#next = Math.max(this.#next, opened + 1);
        this.#open.set(opened, { entry: opened, model, session: null, error: null });
      } else if ("named" in entry) {
        const open = this.#open.get(entry.named);
        if (open !== undefined) this.#open.set(entry.named, { ...open, session: entry.session });
      } else if ("closed" in entry) this.#open.delete(entry.closed);
      else {
        const open = this.#open.get(entry.failed);
        if (open !== undefined) this.#open.set(entry.failed, { ...open, error: entry.error });
      }
    }
  }

  #parse(path: string, number: number, text: string): z.infer<typeof line> {
    try {
      return line.parse(JSON.parse(text));
    } catch (cause) {
      throw new UsageError(
        "malformed-ledger",
        `${path}:${number}: must be a line of a ledger of sessions; restore the file, or delete it to forget which were left open`,
        { cause },
      );
    }
  }
}
