import { dirname, resolve } from "node:path";
import { Command, Option } from "@commander-js/extra-typings";
import { checkReplaceableFile, makeFolder, writeFileAtomic } from "@astra-rl/torch";
import { readConfiguration } from "../configuration/index.js";
import { PROMPT_SPLITS } from "../datasets/index.js";
import { doubtsOfEvaluation, stringifyEvaluation } from "../records/index.js";
import { evaluationReport, foundReport } from "../report/index.js";
import {
  assembleEvaluator,
  assembleEvaluationSystem,
  chatModelsReadPlainly,
  checkWindows,
  describeMeasured,
  loadPrompts,
  trustsEmbeddedScorer,
} from "../assembly/index.js";
import { EMBEDDED_SCORER_LIMITS } from "../scorer/index.js";
import {
  downloadNotes,
  noteHubModels,
  setOption,
  testerOption,
  testerOverride,
} from "./configuration-options.js";
import { NoVerdictError } from "./exit.js";
import type { System } from "../core/index.js";
import { withMemoryAdvice } from "../training/memory-advice.js";
import { createOutput, type Streams } from "./output.js";
import { Progress } from "./progress.js";

/** `astra-rl eval CONFIG`: single-path rollouts from held-out prompts, with metrics per turn, per rollout and overall. */
export function evalCommand(streams: Streams) {
  return new Command("eval")
    .description("Evaluate the tester against the target on held-out prompts")
    .argument("<config>", "configuration file")
    .addOption(testerOption())
    .addOption(new Option("--split <name>", "which prompts").choices(PROMPT_SPLITS).default("test" as const))
    .option(
      "--output <file>",
      'write the whole record there, as JSON with summary and details; "-" is standard output',
    )
    .addOption(setOption())
    .option("--json", "print the whole record instead of a table", false)
    .option("--quiet", "results and errors only", false)
    .action(async (config, { tester, split, output: file, set, json, quiet }) => {
      const output = createOutput(streams, { quiet });
      const toFile = file !== undefined && file !== "-";
      if (toFile) checkReplaceableFile(file);
      const overrides = [...(set ?? []), ...testerOverride(tester)];
      const configuration = await readConfiguration(config, { overrides });
      checkWindows(configuration);
      noteHubModels(configuration, output);
      // Of targets alone: the tester is a checkpoint as a rule, and may be one of the embedded model's.
      const { target, otherTargets } = configuration.models;
      const targets = [target, ...otherTargets].filter(
        (model) => (model as typeof model | undefined) !== undefined,
      );
      if (trustsEmbeddedScorer(configuration, targets)) output.alert(EMBEDDED_SCORER_LIMITS);
      const prompts = await loadPrompts(configuration, split, downloadNotes(output));
      const { rollouts, batchSize } = configuration.evaluation;
      const system = await assembleEvaluationSystem<System>(configuration, downloadNotes(output));
      try {
        for (const line of chatModelsReadPlainly(system)) output.alert(line);
        const evaluator = await assembleEvaluator(configuration, system, prompts);
        const progress = new Progress(output, {
          unit: "rollout",
          total: Math.min(rollouts ?? Infinity, prompts.length),
        });
        const figures = await withMemoryAdvice("evaluation", () =>
          evaluator.evaluate({
            seed: configuration.seed,
            batchSize,
            ...(rollouts === undefined ? {} : { rollouts: Math.min(rollouts, prompts.length) }),
            onProgress: (done) => progress.update(done),
          }),
        );
        progress.end();
        const { tester: speaker } = system as { tester?: { model?: { dtype?: string } } };
        const dtype = speaker?.model?.dtype ?? "none";
        const measured = await describeMeasured(configuration, { split, prompts, dtype });
        const record = { measured, ...figures };
        if (toFile) {
          makeFolder(dirname(resolve(file)));
          writeFileAtomic(file, [stringifyEvaluation(record)]);
        }
        if (json || file === "-") output.json(record);
        else for (const line of [...evaluationReport(record), ...foundReport(record)]) output.result(line);
        if (toFile) output.note(`Wrote ${file}`);
        const doubts = doubtsOfEvaluation(record.summary);
        if (doubts.length > 0) throw new NoVerdictError("eval", doubts);
      } finally {
        system.dispose();
      }
    });
}
