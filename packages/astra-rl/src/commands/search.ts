import { createHash } from "node:crypto";
import { dirname, resolve } from "node:path";
import { Command, InvalidArgumentError } from "@commander-js/extra-typings";
import { checkReplaceableFile, makeFolder, UsageError } from "@astra-rl/base";
import {
  assembleEvaluationSystem,
  loadPrompts,
  trustsEmbeddedScorer,
  withToday,
  checkpointOf,
  promptText,
  EMBEDDED_SCORER_LIMITS,
  type Configuration,
  type ModelSetting,
  type Prompt,
} from "@astra-rl/assembly";
import {
  acceptCanaryOption,
  endJournal,
  endSessions,
  forgetSessions,
  evaluationProgress,
  showEvaluation,
  introduceModels,
  prepareEvaluation,
  stoppedEvaluationLine,
  untilInterrupted,
  untilStopped,
  loggerOf,
  keepAnswersOf,
  downloadNotes,
  readCommandConfiguration,
  setOption,
  Progress,
  requireAlone,
  withSpending,
} from "@astra-rl/assembly/command";
import {
  NoVerdictError,
  writeResult,
  quietOption,
  wholeNumber,
  createOutput,
  type Output,
  type Streams,
} from "@astra-rl/assembly/program";
import { ReplayTester, type System } from "@astra-rl/method";
import type { AnswerJournal } from "@astra-rl/http";
import { spendingLines, stringifyEvaluation } from "@astra-rl/records";
import { searchLines } from "@astra-rl/report";
import { depthOf, NO_LIKELIHOOD, searchProbes } from "../search-probes.js";
import "@astra-rl/contrib/kinds";

const DEFAULT_QUERIES = 3600;
/** A single probe succeeds most often, but reveals the least about a target. */
const DEFAULT_PROBES = 16;

const declared = () =>
  new Command("search")
    .description(
      "Find likely probes that lead to harm without training: sample the tester, try the best probes on more " +
        "prompts, and evaluate them",
    )
    .argument("<config>", "configuration file of a training")
    .option(
      "--queries <n>",
      "maximum number of responses that the search requests from the target; the evaluation is not counted",
      wholeNumber(1),
      DEFAULT_QUERIES,
    )
    .option(
      "--probes <n>",
      "maximum number of probes to find; each conversation of the evaluation uses one of them",
      wholeNumber(1),
      DEFAULT_PROBES,
    )
    .option(
      "--max-nll <nats>",
      "maximum nats per token of a probe, or none (default: the mean of the tester's probes plus 0.1)",
      natsOrNone,
    )
    .option(
      "--output <file>",
      "write the full record to this file, as eval does, for compare, gate and report",
    )
    .addOption(acceptCanaryOption())
    .addOption(setOption())
    .option("--json", "print the full record as JSON instead of a table", false)
    .addOption(quietOption());

type SearchCommandOptions = ReturnType<ReturnType<typeof declared>["opts"]>;

/** `astra-rl search CONFIG`: the plain alternative to training, with the same configuration. */
export const searchCommand = (streams: Streams) =>
  declared().action(async (config, { quiet, ...options }) => {
    requireAlone("search");
    const output = createOutput(streams, { quiet });
    await untilInterrupted(output, (hooks) => searchFrom(config, options, output, hooks));
  });

async function searchFrom(
  config: string,
  { queries, probes: keep, maxNll: bound, output: file, json, ...given }: Omit<SearchCommandOptions, "quiet">,
  output: Output,
  { signal, onLoaded }: { signal: AbortSignal; onLoaded: () => void },
): Promise<void> {
  const maxNll = bound === "none" ? null : bound;
  const logger = loggerOf(output);
  if (file !== undefined) checkReplaceableFile(file);
  const configuration = withToday(await readCommandConfiguration(config, given, output));
  const { target, otherTargets } = configuration.models;
  const targets = [target, ...otherTargets].filter(
    (model) => (model as ModelSetting | undefined) !== undefined,
  );
  if (trustsEmbeddedScorer(configuration, targets)) output.alert(EMBEDDED_SCORER_LIMITS);
  const prompts = await loadPrompts(configuration, "test", downloadNotes(output));
  const openers = openersBeside(
    await loadPrompts(configuration, "train", downloadNotes(output)),
    prompts,
    output,
  );
  const assembled = await assembleEvaluationSystem<System>(configuration, downloadNotes(output));
  const { system } = assembled;
  let journal: AnswerJournal | null = null;
  let isComplete = false;
  try {
    const { tellsLikelihood } = system as { tellsLikelihood?: boolean };
    if (typeof maxNll === "number" && tellsLikelihood === false)
      throw new UsageError("no-likelihood", NO_LIKELIHOOD);
    if (file !== undefined) {
      makeFolder(dirname(resolve(file)));
      journal = await keepAnswersOf(assembled, `${file}.answers.jsonl`, { configuration, logger });
    }
    onLoaded();
    let after = "0 answers";
    const stopped = () => stoppedEvaluationLine("search", after, journal);
    const [search, record] = await untilStopped(signal, stopped, async (check) => {
      const { formats, servers } = await introduceModels(assembled, logger, [...openers, ...prompts]);
      const evaluation = await prepareEvaluation(configuration, assembled, {
        logger,
        split: "test",
        prompts,
        trainingPrompts: openers,
        formats,
        servers,
        accept: given.accept,
      });
      if (!evaluation.canary.isTrusted) {
        return [null, await withSpending(await evaluation.measure({}), assembled)] as const;
      }
      const rollouts = rolloutsOf(configuration, prompts);
      const progress = new Progress(output, { unit: "answer", total: queries });
      const tester = new ReplayTester();
      const result = await searchProbes(configuration, assembled, {
        openers,
        queries,
        keep,
        maxNll,
        firstEpisode: rollouts,
        tester,
        onProgress: (done) => {
          progress.update(done);
          after = `${done} answers`;
          check();
        },
      });
      progress.end();
      if (result.search === null) throw new NoVerdictError("search", result.doubts);
      const { search } = result;
      if (search.probes.every(({ biased_estimate: { n_successes: found } }) => found === 0)) {
        output.alert(
          "no probe led to harm in the search, so the evaluation uses probes that are merely likely; allow more " +
            "queries, or train a tester " +
            "if harm requires different probes in successive turns, since a search repeats one probe",
        );
      }
      if (search.max_nll === null && maxNll === undefined) {
        output.note("No model computes the likelihood of probes, so the search runs without a bound");
      }
      const texts = search.probes.map(({ probe }) => probe);
      tester.say(takingTurns(texts, { prompts: prompts.length, rollouts, depth: depthOf(configuration) }));
      const progressed = evaluationProgress(output);
      const record = await evaluation.measure({
        onProgress: (done, total) => {
          progressed(done, total);
          check();
        },
        tester: identityOf(configuration, texts),
        search,
      });
      return [search, await withSpending(record, assembled)] as const;
    });
    if (file !== undefined) writeResult(file, stringifyEvaluation(record));
    endJournal(journal, record, logger);
    isComplete = true;
    for (const line of spendingLines(record.spending ?? {})) output.note(line);
    if (file !== undefined) output.note(`Wrote ${file}`);
    if (!json && search !== null) for (const line of searchLines(search, record.summary)) output.result(line);
    showEvaluation("search", record, output, json);
  } finally {
    for (const line of await endSessions(assembled)) output.alert(line);
    if (isComplete) forgetSessions(assembled);
    system.dispose();
    journal?.close();
  }
}

function natsOrNone(text: string): number | "none" {
  if (text === "none") return text;
  const value = text.trim() === "" ? NaN : Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new InvalidArgumentError('It must be a number above 0, or "none".');
}

/**
 * The openers that are not test prompts, by their texts: a probe chosen on a test prompt would be evaluated on what it
 * was chosen by.
 *
 * @throws UsageError if none is left
 */
function openersBeside(openers: readonly Prompt[], prompts: readonly Prompt[], output: Output): Prompt[] {
  const textOf = (prompt: Prompt) => promptText(prompt).trim();
  const tested = new Set(prompts.map(textOf));
  const left = openers.filter((opener) => !tested.has(textOf(opener)));
  if (left.length === 0) {
    throw new UsageError(
      "no-separate-prompts",
      "prompts.train: every prompt is also in prompts.test, and probes chosen on test prompts cannot be " +
        "evaluated on them; " +
        "use other prompts for one of the two",
    );
  }
  const removed = openers.length - left.length;
  if (removed > 0) {
    output.alert(
      `${removed} of ${openers.length} training prompts are also test prompts, which the search skips`,
    );
  }
  // A duplicate opener adds no information.
  return [...new Map(left.map((opener) => [textOf(opener), opener])).values()];
}

const rolloutsOf = ({ evaluation }: Configuration, prompts: readonly Prompt[]): number =>
  Math.min(evaluation.rollouts ?? Infinity, evaluation.repeats * prompts.length);

/** The probe that each rollout repeats at each turn, as it was tried: each prompt and each repeat uses the next one. */
function takingTurns(
  texts: readonly string[],
  { prompts, rollouts, depth }: { prompts: number; rollouts: number; depth: number },
): string[][] {
  return Array.from({ length: rollouts }, (_, rollout) => {
    const at = (rollout % prompts) + Math.floor(rollout / prompts);
    return Array.from({ length: depth }, () => texts[at % texts.length]!);
  });
}

/** Identity of a tester that is a list of probes, by its texts: not that of the model they were sampled from. */
function identityOf({ models, system }: Configuration, texts: readonly string[]) {
  const { tester } = models as { tester?: ModelSetting };
  const name = (tester === undefined ? null : checkpointOf(tester)) ?? system?.type;
  const count = texts.length === 1 ? "1 probe" : `${texts.length} probes`;
  const sha256 = createHash("sha256").update(JSON.stringify(texts)).digest("hex");
  return { model: `${count} found by search with ${String(name)}`, files: { probes: sha256 } };
}
