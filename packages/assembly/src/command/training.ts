import { distributed } from "@astra-rl/torch";
import type { Graph, System, HFASTTrainerOptions, TrainingCallback } from "@astra-rl/method";
import { doubtsOfStep, reasonsOf, type MetricsRecord } from "@astra-rl/records";
import {
  assembleTrainer,
  recordStop,
  spendingNotes,
  spendingNotesOfRanks,
  type AssembledTrainer,
} from "../assemble/index.js";
import type { Configuration } from "../configuration/index.js";
import { StoppedError, StoppedWaitingError, stoppedLine } from "./interruption.js";
import { downloadNotes } from "./options.js";
import type { Output } from "../program/output.js";
import { trainingProgress } from "./progress.js";
import { sampleConversations } from "./sample-conversation.js";

/**
 * Trains and shows the steps: progress, doubts, and a conversation on request.
 *
 * @param goOn the command that resumes a stopped run
 * @param work prepares the run and has the trainer train
 * @throws StoppedError, StoppedWaitingError for a run that was stopped early
 */
export async function trainFollowed<T>(
  configuration: Configuration,
  system: System,
  output: Output,
  {
    command,
    goOn,
    onStep,
    ...options
  }: Omit<HFASTTrainerOptions, "evaluator" | "callbacks" | "onProgress"> & {
    command: string;
    goOn: string;
    onStep?: (record: MetricsRecord) => void;
  },
  work: (trainer: AssembledTrainer) => Promise<T>,
): Promise<T> {
  const { trainingSteps } = configuration.training;
  const progress = trainingProgress(output, trainingSteps, { spending: () => spendingNotes(system) });
  const onStepKept = (record: MetricsRecord) => {
    progress.step(record);
    onStep?.(record);
  };
  const samples = sampleConversations(output);
  const callbacks = [stepDoubts(output), samples.callback, { name: "progress", onStepKept }];
  try {
    const followed = { ...options, callbacks, onProgress: progress.phase };
    const trainer = await assembleTrainer(configuration, system, followed, downloadNotes(output));
    const stopped = () => stoppedLine(command, trainer.step, trainingSteps, goOn);
    let made: T;
    try {
      made = await work(trainer);
      const { step, stopReason: reason = null } = trainer;
      const folder = options.runDirectory ?? null;
      const isEarly = reason !== null && step < trainingSteps;
      if (isEarly && folder !== null && distributed.rank() === 0) recordStop(folder, { step, reason });
    } catch (error) {
      if (!(error instanceof StoppedWaitingError)) throw error;
      throw new StoppedWaitingError(`${stopped()}; ${error.message}`, { cause: error });
    } finally {
      trainer.dispose();
      progress.end();
    }
    for (const line of await spendingNotesOfRanks(system)) output.note(line);
    const isStopped = (await distributed.allGatherObject(options.signal?.aborted === true)).includes(true);
    if (isStopped && trainer.step < trainingSteps) throw new StoppedError(stopped());
    return made;
  } finally {
    samples.end();
  }
}

/** Warns at the first step that is inconclusive about the target, because a run may take days. */
function stepDoubts(output: Output): TrainingCallback {
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
      const line = `step ${record.step}: this step is inconclusive: ${reasonsOf(doubts)}${first} (shown once)`;
      // A single step with nothing to learn from is common.
      if (doubts.every(({ rule }) => rule === "nothing-learned")) {
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
