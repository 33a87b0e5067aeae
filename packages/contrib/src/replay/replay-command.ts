import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
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
  type Prompt,
} from "@astra-rl/assembly";
import { goalOf, type Goal } from "@astra-rl/lm";
import {
  showEvaluation,
  introduceModels,
  loggerOf,
  downloadNotes,
  readCommandConfiguration,
  setOption,
  Progress,
  requireAlone,
  withCanary,
  withHarmlessControl,
  withSpending,
} from "@astra-rl/assembly/command";
import { writeResult, quietOption, createOutput, type Streams } from "@astra-rl/assembly/program";
import type { ASTEvaluator } from "@astra-rl/method";
import { ReplayTester, computeTypesOf, type GraphMetrics, type Metrics, type System } from "@astra-rl/method";
import { parseReplayBundle, type ReplayAttack } from "@astra-rl/report/export";
import { visible } from "@astra-rl/report";
import { spendingLines, stringifyEvaluation } from "@astra-rl/records";
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
    .addOption(setOption())
    .option("--json", "print the full record as JSON instead of a table", false)
    .addOption(quietOption())
    .action(async (bundlePath, config, { target, output: file, set = [], json, quiet }) => {
      requireAlone("replay");
      const output = createOutput(streams, { quiet });
      if (file !== undefined) checkReplaceableFile(file);
      const text = readFileSync(bundlePath, "utf8");
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
        const progress = new Progress(output, { unit: "attack", total: attacks.length });
        const metrics: GraphMetrics[] = [];
        let evaluator: ASTEvaluator | null = null;
        // Attacks of equal length are replayed together; then all are restored to the bundle's order.
        const lengths = [...new Set(attacks.map(({ probes }) => probes.length))].sort((a, b) => a - b);
        let done = 0;
        for (const length of lengths) {
          const places = [...attacks.keys()].filter((at) => attacks[at]!.probes.length === length);
          tester.say(places.map((at) => attacks[at]!.probes));
          const own = {
            ...configuration,
            evaluation: { ...configuration.evaluation, depth: length, repeats: 1 },
          };
          evaluator = await assembleEvaluator(
            withHarmlessControl(own, assembled),
            assembled,
            places.map((at) => prompts[at]!),
          );
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
        const figures = await evaluator!.aggregateMetrics(metrics);
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
        const summary = await withCanary(configuration, assembled, figures.summary);
        const record = await withSpending({ measured, ...figures, summary }, assembled);
        for (const line of spendingLines(record.spending ?? {})) output.note(line);
        if (file !== undefined) {
          writeResult(file, stringifyEvaluation(record));
          output.note(`Wrote ${file}`);
        }
        if (!json) {
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
