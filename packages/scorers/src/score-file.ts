import { closeSync, createReadStream, fstatSync, openSync, readSync, statSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { createInterface } from "node:readline";
import { explainDiskErrors, makeFolder, UsageError } from "@astra-rl/base";
import type { Score } from "@astra-rl/method";

export interface ScoreFileOptions {
  /** Maximum number of scores to load, latest first. Default: all. */
  limit?: number;
  /** Called with a sentence about skipped lines. Default: prints to stderr. */
  onWarning?: (sentence: string) => void;
}

const VERSION = 1;

/**
 * A persistent score cache, one JSON object per line: `version`, `scorer` (its identity), `item` (digest of the scored
 * item; texts are not stored), `score`, `labels`.
 *
 * The file is append-only and lines are written in a single write, so several processes may use it at the same time;
 * each sees what was there when it opened the file. Several scorers may share a file; each sees only its own scores.
 */
export class ScoreFile {
  /** This scorer's scores in the file when it was opened, oldest first, keyed by the item's digest. */
  readonly scores: ReadonlyMap<string, Score>;
  #handle: number | null = null;

  private constructor(
    readonly path: string,
    readonly identity: string,
    scores: ReadonlyMap<string, Score>,
  ) {
    this.scores = scores;
  }

  /**
   * @param path need not exist yet
   * @param identity identifies the scorer, including everything that its scores depend on
   * @throws UsageError for a file of another kind, and for one that cannot be read
   */
  static async open(
    path: string,
    identity: string,
    { limit = Infinity, onWarning = (sentence) => console.error(sentence) }: ScoreFileOptions = {},
  ): Promise<ScoreFile> {
    const scores = new Map<string, Score>();
    const found = statSync(path, { throwIfNoEntry: false });
    if (found === undefined) return new ScoreFile(path, identity, scores);
    // Reading a device may never end.
    if (!found.isFile())
      throw new UsageError("not-a-file", `${path}: must be a file of scores, got something else`);
    let line = 0;
    let kept = 0;
    const strange: number[] = [];
    try {
      for await (const text of createInterface({ input: createReadStream(path), crlfDelay: Infinity })) {
        line += 1;
        if (text === "") continue;
        const entry = parseLine(text);
        if (entry === null) {
          strange.push(line);
          continue;
        }
        kept += 1;
        if (entry.scorer !== identity) continue;
        // Later lines are more recent.
        scores.delete(entry.item);
        scores.set(entry.item, entry.score);
        if (scores.size > limit) scores.delete(scores.keys().next().value!);
      }
    } catch (cause) {
      throw new UsageError("file-unreadable", `${path}: cannot be read: ${(cause as Error).message}`, {
        cause,
      });
    }
    if (strange.length > 0 && kept === 0) {
      throw new UsageError(
        "not-a-score-file",
        `${path}: must be a file of scores, but it contains none; name another file, or one that does not exist yet`,
      );
    }
    if (strange.length > 0) {
      const which =
        strange.length === 1 ? `line ${strange[0]}` : `${strange.length} lines, ${strange[0]} first,`;
      onWarning(
        `${path}: ${which} cannot be read as a score, as after a crash, and ${strange.length === 1 ? "is" : "are"} ` +
          `skipped and will be recomputed`,
      );
    }
    return new ScoreFile(path, identity, scores);
  }

  /** Appends scores, in one write. @throws UsageError if the disk is full or not writable */
  append(scores: readonly (readonly [item: string, score: Score])[]): void {
    if (scores.length === 0) return;
    const lines = scores.map(([item, { score, labels, cut }]) =>
      JSON.stringify({ version: VERSION, scorer: this.identity, item, score, labels, cut }),
    );
    if (this.#handle === null) makeFolder(dirname(this.path));
    explainDiskErrors(this.path, () => {
      const handle = (this.#handle ??= openSync(this.path, "a+"));
      // Start a new line after one that was cut off by a crash or a full disk. If another process is in the middle of a
      // write, this leaves an empty line, which reading skips.
      const text = Buffer.from(`${endsLine(handle) ? "" : "\n"}${lines.join("\n")}\n`);
      let done = writeSync(handle, text);
      // Short write: the disk is nearly full, and the next write will report it.
      while (done < text.length) done += writeSync(handle, text, done);
    });
  }

  close(): void {
    if (this.#handle !== null) closeSync(this.#handle);
    this.#handle = null;
  }
}

function endsLine(handle: number): boolean {
  const { size } = fstatSync(handle);
  if (size === 0) return true;
  const last = Buffer.alloc(1);
  readSync(handle, last, 0, 1, size - 1);
  return last[0] === 0x0a;
}

/** null for an invalid line. */
function parseLine(text: string): { scorer: string; item: string; score: Score } | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const { version, scorer, item, score, labels, cut } = value as Record<string, unknown>;
  if (version !== VERSION || typeof scorer !== "string" || typeof item !== "string") return null;
  if (!isNumber(score)) return null;
  const isCut = cut === true ? { cut } : {};
  if (labels === undefined) return { scorer, item, score: { score, ...isCut } };
  if (typeof labels !== "object" || labels === null || !Object.values(labels).every(isNumber)) return null;
  return { scorer, item, score: { score, labels: labels as Record<string, number>, ...isCut } };
}

const isNumber = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value);
