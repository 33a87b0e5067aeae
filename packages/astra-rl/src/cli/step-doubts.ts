import type { Graph } from "../core/index.js";
import { doubtsOfStep, NOTHING_LEARNED, type MetricsRecord } from "../records/index.js";
import type { TrainingCallback } from "../training/index.js";
import type { Output } from "./output.js";

/** Warns at the first step that says nothing about the target, because a run may take days. */
export function stepDoubts(output: Output): TrainingCallback {
  let hasSpoken = false;
  let hasNoted = false;
  let failure: string | null = null;
  return {
    name: "doubts",
    onExperience: ({ graphs }) => {
      failure = hasSpoken ? null : firstFailure(graphs);
    },
    onStepKept: (record: MetricsRecord) => {
      const doubts = hasSpoken ? [] : doubtsOfStep(record);
      if (doubts.length === 0) return;
      const first = failure === null ? "" : `, first with "${failure}"`;
      const line = `step ${record.step}: says nothing of the target: ${doubts.join("; ")}${first} (said once)`;
      // A single step with nothing to learn from is common.
      if (doubts.every((doubt) => doubt === NOTHING_LEARNED)) {
        if (!hasNoted) output.note(line);
        hasNoted = true;
        return;
      }
      hasSpoken = true;
      output.alert(line);
    },
  };
}

function firstFailure(graphs: readonly Graph[]): string | null {
  for (const graph of graphs) {
    for (const { failure } of graph.nodes()) {
      if (failure !== null) return `${failure.stage}: ${failure.message}`;
    }
  }
  return null;
}
