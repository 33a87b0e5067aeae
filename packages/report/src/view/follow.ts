import { join } from "node:path";
import { parseMetricsLine, type MetricsRecord } from "@astra-rl/records";
import { EVALUATION_FILES } from "../report/index.js";
import { GrowingFile, LONGEST_LINE, stampsIn } from "./open-file.js";

/** Changes in a run folder since the last check. */
export interface Change {
  /** New lines of metrics.jsonl. */
  metrics: MetricsRecord[];
  /** Whether the file was truncated or replaced, as by a resumed run: records sent earlier are invalid. */
  isReset: boolean;
  /** Whether there is a new evaluation, or a new graph. */
  evaluations: boolean;
  graphs: boolean;
}

const EVALUATIONS = ["evaluations.jsonl", ...EVALUATION_FILES];

/** Follows a run folder that is being written. */
export class Follower {
  readonly #metrics: GrowingFile;
  #evaluations: string;
  #graphs: string;

  /** @param since number of steps already known */
  constructor(
    readonly folder: string,
    readonly since: number,
  ) {
    this.#metrics = new GrowingFile(join(folder, "metrics.jsonl"), 2 * LONGEST_LINE);
    this.#evaluations = stampsIn(folder, EVALUATIONS);
    this.#graphs = stampsIn(folder, ["graphs.jsonl"]);
  }

  look(): Change {
    const metrics: MetricsRecord[] = [];
    let isReset = false;
    this.#metrics.read(
      (line) => {
        if (isReset || stepOf(line) > this.since) metrics.push(...recordOf(line, this.#metrics.path));
      },
      () => (isReset = true),
    );
    const [evaluations, graphs] = [
      stampsIn(this.folder, EVALUATIONS),
      stampsIn(this.folder, ["graphs.jsonl"]),
    ];
    const change = {
      metrics,
      isReset,
      evaluations: evaluations !== this.#evaluations,
      graphs: graphs !== this.#graphs,
    };
    this.#evaluations = evaluations;
    this.#graphs = graphs;
    return change;
  }
}

/** A page may already know a long run: only new lines are parsed. */
const stepOf = (line: string): number => Number(/^\{"step":(\d+)/u.exec(line)?.[1] ?? Infinity);

function recordOf(line: string, where: string): MetricsRecord[] {
  try {
    return [parseMetricsLine(line, where)];
  } catch {
    return [];
  }
}
