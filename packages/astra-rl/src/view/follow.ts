import { closeSync, fstatSync, readSync, statSync } from "node:fs";
import { join } from "node:path";
import { parseMetricsLine, type MetricsRecord } from "../records/index.js";
import { openIfFile } from "./open-file.js";

/** What has changed in a run folder since the last look. */
export interface Change {
  /** New lines of metrics.jsonl. */
  metrics: MetricsRecord[];
  /** Whether the file was cut or replaced, as by a resumed run: records sent earlier are invalid. */
  isReset: boolean;
  /** Whether there is a new evaluation, or a new graph. */
  evaluations: boolean;
  graphs: boolean;
}

const EVALUATIONS = [
  "evaluations.jsonl",
  "evaluation.json",
  "evaluation-before.json",
  "evaluation-after.json",
];

/** Follows a run folder that is being written. */
export class Follower {
  #read = 0;
  #inode = 0;
  #evaluations: string;
  #graphs: string;

  /** @param since steps that are known already */
  constructor(
    readonly folder: string,
    readonly since: number,
  ) {
    this.#evaluations = this.#stamp(EVALUATIONS);
    this.#graphs = this.#stamp(["graphs.jsonl"]);
  }

  look(): Change {
    const [evaluations, graphs] = [this.#stamp(EVALUATIONS), this.#stamp(["graphs.jsonl"])];
    const change = {
      ...this.#metrics(),
      evaluations: evaluations !== this.#evaluations,
      graphs: graphs !== this.#graphs,
    };
    this.#evaluations = evaluations;
    this.#graphs = graphs;
    return change;
  }

  #stamp(names: readonly string[]): string {
    return names
      .map((name) => {
        const stats = statSync(join(this.folder, name), { throwIfNoEntry: false });
        return stats === undefined ? "-" : `${stats.ino}:${stats.size}`;
      })
      .join(" ");
  }

  #metrics(): Pick<Change, "metrics" | "isReset"> {
    const path = join(this.folder, "metrics.jsonl");
    const handle = openIfFile(path);
    if (handle === null) {
      const isReset = this.#read > 0;
      this.#read = 0;
      return { metrics: [], isReset };
    }
    try {
      const { size, ino } = fstatSync(handle);
      const isReset = this.#read > 0 && (size < this.#read || ino !== this.#inode);
      if (isReset) this.#read = 0;
      this.#inode = ino;
      const bytes = Buffer.alloc(size - this.#read);
      const count = readSync(handle, bytes, 0, bytes.length, this.#read);
      // A last line without its end is being written.
      const end = bytes.subarray(0, count).lastIndexOf(10) + 1;
      this.#read += end;
      const lines = bytes.toString("utf8", 0, end).split("\n").slice(0, -1);
      const since = isReset ? 0 : this.since;
      return {
        metrics: lines.filter((line) => stepOf(line) > since).flatMap((line) => recordOf(line, path)),
        isReset,
      };
    } finally {
      closeSync(handle);
    }
  }
}

/** A page may know a long run already: only what is new to it is parsed. */
const stepOf = (line: string): number => Number(/^\{"step":(\d+)/u.exec(line)?.[1] ?? Infinity);

function recordOf(line: string, where: string): MetricsRecord[] {
  try {
    return [parseMetricsLine(line, where)];
  } catch {
    return [];
  }
}
