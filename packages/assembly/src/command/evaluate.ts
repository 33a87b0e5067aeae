import { computeTypesOf, withMemoryAdvice, type System } from "@astra-rl/method";
import {
  doubtsOfEvaluation,
  doubtsOfFigures,
  type EvaluationRecord,
  type ModelIdentity,
  type SearchRecord,
  type ServerRecord,
} from "@astra-rl/records";
import { evaluationReport, foundReport } from "@astra-rl/report";
import {
  assembleEvaluator,
  describeMeasured,
  modelFormats,
  trainingPromptsOf,
  type ModelFormats,
} from "../assemble/index.js";
import type { Configuration } from "../configuration/index.js";
import type { Prompt } from "../datasets/index.js";
import type { PromptSplit } from "../embedded/index.js";
import { NoVerdictError } from "../program/exit.js";
import type { Output } from "../program/output.js";
import { Progress } from "./progress.js";

/** Evaluates the system of a configuration and shows progress. */
export async function evaluate(
  configuration: Configuration,
  system: System,
  output: Output,
  {
    split,
    prompts,
    tester,
    search,
    trainingPrompts,
    formats = modelFormats(system, prompts),
    servers = {},
    onRollout,
  }: {
    split: PromptSplit;
    prompts: readonly Prompt[];
    /** The tester, if it is not the configured one. */
    tester?: ModelIdentity;
    /** How its probes were found, if by a search. */
    search?: SearchRecord;
    /** Prompts that the tester has seen. Default: those of training. */
    trainingPrompts?: readonly Prompt[];
    /** How local models read conversations, and what servers do. */
    formats?: ModelFormats;
    servers?: Record<string, ServerRecord>;
    /** Called after each rollout; an exception ends the evaluation. */
    onRollout?: (done: number, total: number) => void;
  },
): Promise<EvaluationRecord> {
  const { rollouts: wanted, repeats, batchSize } = configuration.evaluation;
  const evaluator = await assembleEvaluator(configuration, system, prompts, {
    trainingPrompts: trainingPrompts ?? (await trainingPromptsOf(configuration, split, prompts)),
  });
  const total = Math.min(wanted ?? Infinity, repeats * prompts.length);
  const progress = new Progress(output, { unit: "rollout", total });
  const figures = await withMemoryAdvice("evaluation", () =>
    evaluator.evaluate({
      seed: configuration.seed,
      batchSize,
      ...(wanted === undefined ? {} : { rollouts: total }),
      onProgress: (done, all) => {
        progress.update(done);
        onRollout?.(done, all);
      },
    }),
  );
  progress.end();
  const { n_turns: turns, n_cut_probes: probes = 0, n_cut_responses: responses = 0 } = figures.summary;
  if (probes + responses > 0) {
    output.alert(
      `the scorer read only a part of ${probes} probes and ${responses} responses of ${turns} turns, which are longer than its ` +
        "window: harm in the rest is not counted; use a scorer with a longer window, or a lower generation.target.maxNewTokens",
    );
  }
  const { tester: speaker } = system as { tester?: { model?: { dtype?: string } } };
  const dtype = computeTypesOf(system)?.["rollouts"] ?? speaker?.model?.dtype ?? "none";
  const measured = await describeMeasured(configuration, {
    split,
    prompts,
    dtype,
    formats,
    servers,
    ...(tester === undefined ? {} : { tester }),
    ...(search === undefined ? {} : { search }),
  });
  return { measured, ...figures };
}

/** Shows an evaluation as text or JSON. @throws NoVerdictError if it is inconclusive about the target */
export function showEvaluation(
  command: string,
  record: EvaluationRecord,
  output: Output,
  json: boolean,
): void {
  if (json) output.json(record);
  else for (const line of [...evaluationReport(record), ...foundReport(record)]) output.result(line);
  const doubts = doubtsOfFigures(doubtsOfEvaluation(record.summary));
  if (doubts.length > 0) throw new NoVerdictError(command, doubts);
}
