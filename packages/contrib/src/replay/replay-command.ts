import { createHash } from "node:crypto";
import { basename, resolve } from "node:path";
import { Command } from "@commander-js/extra-typings";
import { checkReplaceableFile } from "@astra-rl/base";
import {
  assembleEvaluationSystem,
  assembleEvaluator,
  describeMeasured,
  withToday,
  parseOverride,
  parsePrompts,
  promptWithGoal,
  type Configuration,
  type Prompt,
} from "@astra-rl/assembly";
import { goalOf, type Goal } from "@astra-rl/lm";
import {
  acceptCanaryOption,
  askCanary,
  figuresWithoutRollouts,
  showEvaluation,
  introduceModels,
  loggerOf,
  downloadNotes,
  readCommandConfiguration,
  setOption,
  Progress,
  requireAlone,
  withCanary,
  withDoubtsOfCalls,
  withHarmlessControl,
  withSpending,
} from "@astra-rl/assembly/command";
import { readResult, writeResult, quietOption, createOutput, type Streams } from "@astra-rl/assembly/program";
import { ReplayTester, computeTypesOf, type GraphMetrics, type Metrics, type System } from "@astra-rl/method";
import { parseReplayBundle, type ReplayAttack } from "@astra-rl/report/export";
import { visible } from "@astra-rl/report";
import { spendingLines, stringifyEvaluation, type EvaluationRecord } from "@astra-rl/records";
import "../kinds.js";

/** `astra-rl replay BUNDLE CONFIG`: repeats found attacks against the target of a configuration. */
export function replayCommand(streams: Streams) {
  return new Command("replay")
    .description("Replay found attacks against another target or version, and score its responses")
    .argument("<bundle>", "file written by export --format replay")
    .argument("<config>", "configuration file; its tester is not used")
    .option("--target <model>", "replaces models.target")
    .option(
      "--output <file>",
      "write the full record to this file, as eval does, for compare, gate and report",
    )
    .addOption(acceptCanaryOption())
    .addOption(setOption())
    .option("--json", "print the full record as JSON instead of a table", false)
    .addOption(quietOption())
    .action(async (bundlePath, config, { target, output: file, set = [], accept, json, quiet }) => {
      requireAlone("replay");
      const output = createOutput(streams, { quiet });
      if (file !== undefined) checkReplaceableFile(file);
      const text = readResult(bundlePath, "a bundle, which export --format replay writes");
      const { attacks, source } = parseReplayBundle(text, bundlePath);
      const ofTarget = target === undefined ? [] : [parseOverride(`models.target=${JSON.stringify(target)}`)];
      const given = await readCommandConfiguration(config, { set: [...set, ...ofTarget] }, output);
      const configuration = withToday(given);
      const tester = new ReplayTester();
      const hub = downloadNotes(output);
      const assembled = await assembleEvaluationSystem<System>(configuration, hub, { tester });
      const { system } = assembled;
      try {
        const prompts = attacks.map((attack) => promptOf(attack, bundlePath));
        const { formats, servers } = await introduceModels(assembled, loggerOf(output), prompts);
        // Attacks of equal length are replayed together; then all are restored to the bundle's order.
        const lengths = [...new Set(attacks.map(({ probes }) => probes.length))].sort((a, b) => a - b);
        const placesOf = (length: number) =>
          [...attacks.keys()].filter((at) => attacks[at]!.probes.length === length);
        const evaluatorOf = (depth: number, controls: Configuration["evaluation"]["controls"]) => {
          const evaluation = { ...configuration.evaluation, depth, repeats: 1, controls };
          const own = placesOf(depth).map((at) => prompts[at]!);
          return assembleEvaluator({ ...configuration, evaluation }, assembled, own);
        };
        const { controls } = withHarmlessControl(configuration, assembled).evaluation;
        const last = await evaluatorOf(lengths.at(-1)!, controls);
        const canary = await askCanary(configuration, assembled, last, { accepted: accept });
        const replayed = async (): Promise<EvaluationRecord> => {
          const progress = new Progress(output, { unit: "attack", total: attacks.length });
          const metrics: GraphMetrics[] = [];
          let done = 0;
          for (const length of lengths) {
            const places = placesOf(length);
            tester.say(places.map((at) => attacks[at]!.probes));
            const evaluator = length === lengths.at(-1) ? last : await evaluatorOf(length, []);
            const { details, goals = [] } = await evaluator.evaluate({
              seed: configuration.seed,
              batchSize: configuration.evaluation.batchSize,
            });
            places.forEach((at, index) => {
              const { overall, per_turn: perTurn } = details[index]!;
              const goal = goals.find(({ id }) => id === overall.goal);
              metrics[at] = {
                overall: overall as unknown as Metrics,
                perTurn: perTurn as unknown as Metrics[],
                ...(goal === undefined ? {} : { goal }),
              };
            });
            progress.update((done += places.length));
          }
          progress.end();
          return last.aggregateMetrics(metrics);
        };
        const figures = canary.isTrusted
          ? await replayed()
          : figuresWithoutRollouts(configuration, assembled, canary);
        const files = { [basename(bundlePath)]: createHash("sha256").update(text).digest("hex") };
        const longest = { ...configuration.evaluation, depth: lengths.at(-1)! };
        const measured = await describeMeasured(
          { ...configuration, evaluation: longest },
          {
            split: "replay",
            prompts,
            source: resolve(bundlePath),
            dtype: computeTypesOf(system)?.rollouts ?? "none",
            tester: { model: `replay of ${source.name}`, files },
            formats,
            servers,
          },
        );
        const summary = withDoubtsOfCalls(withCanary(figures.summary, canary), figures.details, assembled);
        const record = await withSpending({ measured, ...figures, summary }, assembled);
        for (const line of spendingLines(record.spending ?? {})) output.note(line);
        if (file !== undefined) {
          writeResult(file, stringifyEvaluation(record));
          output.note(`Wrote ${file}`);
        }
        if (!json && canary.isTrusted) {
          const { n_successes: still, n_scored: scored } = record.summary;
          const found = source.target === null ? "" : ` against ${visible(source.target)}`;
          output.result(`${still} of ${scored} attacks, found${found}, lead to harm.\n`);
        }
        showEvaluation("replay", record, output, json);
      } finally {
        system.dispose();
      }
    });
}

/** The messages before the first probe, as prompt files have them. */
function promptOf({ prompt, goal }: ReplayAttack, where: string): Prompt {
  const [first] = prompt;
  const row = goal === undefined ? {} : { goal };
  if (prompt.length > 1 || (first !== undefined && first.role !== "user")) {
    return parsePrompts(JSON.stringify({ messages: prompt, ...row }), `${where}.jsonl`)[0]!;
  }
  const text = first?.content ?? "";
  return goal === undefined ? text : promptWithGoal(text, goalOf(goal as Goal));
}
