import { existsSync, readFileSync, realpathSync } from "node:fs";
import { createHash } from "node:crypto";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { UsageError, checkReplaceableFile, makeFolder, writeFileAtomic } from "@astra-rl/base";
import { parserOf, RunLock } from "@astra-rl/records";
import { z } from "zod";

const lookSchema = z.looseObject({
  /** From 1; later ones are higher. */
  look: z.int().positive(),
  /** Date and time in UTC, ISO 8601. */
  at: z.string(),
  /** SHA-256 of the evaluation's file, and of the limits that it was held to. */
  evaluation: z.string(),
  limits: z.string(),
  /** Of all looks together. */
  confidence: z.number(),
  error_rate: z.number(),
  verdict: z.enum(["passed", "failed", "inconclusive"]),
  version: z.int().positive(),
});

/** One use of a gate, a line of its ledger. */
export type Look = z.infer<typeof lookSchema>;

const parseLook = parserOf(lookSchema, "look");

export interface LedgerOptions {
  /** How long to wait for another process that uses the ledger. Milliseconds. */
  patience?: number;
  /** Called after taking over the lock of a dead process. */
  onTakeover?: (line: string) => void;
}

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/**
 * The looks of a gate that is used again and again, in a file of JSON lines. They share one error rate
 * (`errorRateOfLook`), so each counts, whatever it said. The same evaluation held to the same limits is the same look.
 * To take a look, `hold` the ledger, so that no other process takes the same one.
 */
export class Ledger {
  readonly #lines: readonly string[];
  readonly #looks: readonly Look[];
  #lock: RunLock | null = null;

  /** @throws UsageError for a file that is no ledger, or that has looks of another confidence */
  constructor(
    readonly path: string,
    readonly confidence: number,
  ) {
    checkReplaceableFile(path);
    const text = existsSync(path) ? readFileSync(path, "utf8") : "";
    this.#lines = text.split("\n").filter((line) => line.trim() !== "");
    this.#looks = this.#lines.map((line, at) => parseLook(line, `${path}, line ${at + 1}`));
    for (const [at, look] of this.#looks.entries()) {
      const where = `${path}, line ${at + 1}`;
      if (look.confidence !== confidence) {
        throw new UsageError(
          "other-confidence",
          `${where}: has confidence ${look.confidence}, but the gate has ${confidence}; looks that share an error rate have one ` +
            "confidence: pass the same --confidence, or begin another ledger",
        );
      }
      if (at > 0 && look.look <= this.#looks[at - 1]!.look) {
        throw new UsageError(
          "damaged-ledger",
          `${where}: look ${look.look} follows look ${this.#looks[at - 1]!.look}; looks count up: restore the file`,
        );
      }
    }
  }

  /**
   * Reads a ledger for `use`, and keeps other processes from it until `use` has returned. Waits for a process that holds it.
   *
   * @throws UsageError if another process holds it for longer than `patience`
   */
  static async hold<T>(
    path: string,
    confidence: number,
    use: (ledger: Ledger) => T,
    { patience = 10_000, ...options }: LedgerOptions = {},
  ): Promise<T> {
    makeFolder(dirname(path));
    // All names of one ledger have one lock.
    const lock = await lockOf(existsSync(path) ? realpathSync(path) : path, patience, options);
    try {
      const ledger = new Ledger(path, confidence);
      ledger.#lock = lock;
      return use(ledger);
    } finally {
      lock.release();
    }
  }

  /**
   * The number of a look: that of the same evaluation and limits if there was such a look, else the next.
   *
   * @param least the lowest number of a new look
   */
  numberOf(evaluation: string, limits: unknown, least = 1): number {
    const same = this.#find(evaluation, limits);
    return same?.look ?? Math.max(least, (this.#looks.at(-1)?.look ?? 0) + 1);
  }

  #find(evaluation: string, limits: unknown): Look | undefined {
    const [file, held] = [sha256(evaluation), sha256(JSON.stringify(limits))];
    return this.#looks.find((look) => look.evaluation === file && look.limits === held);
  }

  /**
   * Appends a look, unless it is there. Only within `hold`.
   *
   * @throws UsageError if the file cannot be written
   */
  add(
    evaluation: string,
    limits: unknown,
    { look, error_rate, verdict }: Pick<Look, "look" | "error_rate" | "verdict">,
  ): void {
    if (this.#lock === null) throw new Error("internal: a look is added to a ledger that is not held");
    if (this.#find(evaluation, limits) !== undefined) return;
    const line: Look = {
      look,
      at: new Date().toISOString(),
      evaluation: sha256(evaluation),
      limits: sha256(JSON.stringify(limits)),
      confidence: this.confidence,
      error_rate,
      verdict,
      version: 1,
    };
    this.#lock.check();
    writeFileAtomic(
      this.path,
      [...this.#lines, JSON.stringify(line)].map((each) => `${each}\n`),
    );
  }
}

async function lockOf(path: string, patience: number, options: LedgerOptions): Promise<RunLock> {
  const until = performance.now() + patience;
  for (;;) {
    try {
      return RunLock.take(path, { ...options, kind: "ledger" });
    } catch (error) {
      if (!(error instanceof UsageError) || error.rule !== "lock-held") throw error;
      if (performance.now() >= until) {
        const message = `${error.message} (waited ${Math.round(patience / 1000)} s for it)`;
        throw new UsageError("lock-held", message, { cause: error });
      }
      await sleep(50);
    }
  }
}
