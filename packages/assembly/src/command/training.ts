import type { Graph, TrainingCallback } from "@astra-rl/method";
import { doubtsOfStep, reasonsOf, type MetricsRecord } from "@astra-rl/records";
import type { Configuration } from "../configuration/index.js";
import type { Output } from "../program/output.js";
import {
  spendingNotes,
  StoppedError,
  StoppedWaitingError,
  type LoadedRun,
  type TrainHooks,
  type TrainingRun,
} from "../run/index.js";
import { stoppedLine } from "./interruption.js";
import { downloadNotes, loggerOf } from "./options.js";
import { trainingProgress } from "./progress.js";
import { sampleConversations } from "./sample-conversation.js";

/** How a command shows a training. */
export type Following = Required<
  Pick<TrainHooks, "callbacks" | "onProgress" | "logger" | "hub" | "command">
> & {
  /** Called once the models are loaded. */
  onLoaded: (run: LoadedRun) => void;
};

/**
 * Trains and shows the steps: progress, doubts, and a conversation on request.
 *
 * @param command prefix of messages
 * @param resumption the arguments that resume the run in this folder
 * @param run trains
 * @throws StoppedError, StoppedWaitingError for a run that was stopped early
 */
export async function trainFollowed(
  output: Output,
  {
    command,
    resumption,
    onStep,
  }: { command: string; resumption: (folder: string) => string; onStep?: (record: MetricsRecord) => void },
  run: (following: Following) => Promise<TrainingRun>,
): Promise<TrainingRun> {
  let progress = null as ReturnType<typeof trainingProgress> | null;
  const samples = sampleConversations(output);
  const steps: TrainingCallback = {
    name: "progress",
    onStepKept: (record: MetricsRecord) => {
      progress?.step(record);
      onStep?.(record);
    },
    onTrainEnd: () => progress?.end(),
  };
  const following: Following = {
    callbacks: [stepDoubts(output), samples.callback, steps],
    onProgress: (phase) => progress?.phase(phase),
    logger: loggerOf(output),
    hub: downloadNotes(output),
    command: ["astra-rl", ...process.argv.slice(2)],
    onLoaded: ({ configuration, ...assembled }) => {
      progress = trainingProgress(output, configuration.training.trainingSteps, {
        spending: () => spendingNotes(assembled),
        trainsTarget: trainsTarget(configuration),
      });
    },
  };
  try {
    const made = await run(following);
    if (made.isStopped) throw new StoppedError(stoppedLine(command, made, resumption(made.folder)));
    return made;
  } catch (error) {
    if (!(error instanceof StoppedWaitingError)) throw error;
    const line = stoppedLine(command, error, resumption(error.folder));
    throw new StoppedError(`${line}; it was only waiting for an answer`, { cause: error });
  } finally {
    progress?.end();
    samples.end();
  }
}

/** Whether a run hardens a target: its tester is the target, with a silent partner. */
export const trainsTarget = ({ models }: Configuration): boolean =>
  (models.target as { type?: unknown } | undefined)?.type === "silent";

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
