import { Command } from "@commander-js/extra-typings";
import { compareAll, type LabelledEvaluation } from "@astra-rl/analysis";
import { doubtsOfEvaluation, doubtsOfFigures } from "@astra-rl/records";
import {
  compareTable,
  doubtLines,
  rewardHack,
  tableLines,
  tableMarkdown,
  transferTable,
} from "@astra-rl/report";
import { NoVerdictError, readEvaluation, createOutput, type Streams } from "@astra-rl/assembly/program";

/** `astra-rl compare A B…`: evaluations of the same prompts, with paired differences from the first. */
export function compareCommand(streams: Streams) {
  return new Command("compare")
    .description("Compare evaluations of the same prompts: paired differences from the first, with tests")
    .argument("<evaluations...>", "files written by eval --output")
    .option("--transfer", "print a table of testers against targets instead", false)
    .option("--force", "compare evaluations with different settings as well, and list the differences", false)
    .option("--json", "print the result as JSON", false)
    .option("--markdown", "print the table as Markdown", false)
    .option("--quiet", "results, warnings and errors only", false)
    .action((paths, { transfer, force, json, markdown, quiet }) => {
      const output = createOutput(streams, { quiet });
      const evaluations = paths.map((path): LabelledEvaluation => ({
        label: labelOf(path, paths),
        evaluation: readEvaluation(path),
      }));
      const comparisons = compareAll(evaluations, { force });
      const shown = transfer ? transferTable(evaluations) : compareTable(evaluations, comparisons);
      const hacks = comparisons.map(({ record }, at) =>
        record === null ? null : rewardHack(record, evaluations[at + 1]!.evaluation.summary),
      );
      if (json) {
        output.json({
          baseline: evaluations[0]!.label,
          comparisons: comparisons.map(({ label, unlike, isSame, record, adjusted }, at) => ({
            label,
            unlike,
            same: isSame,
            ...record,
            adjusted,
            reward_hack: hacks[at]!,
          })),
          ...(transfer ? { transfer: shown } : {}),
        });
      } else for (const line of markdown ? tableMarkdown(shown) : tableLines(shown)) output.result(line);
      for (const [at, { label, unlike, isSame, isPartial, record }] of comparisons.entries()) {
        const both = `${evaluations[0]!.label} and ${label}`;
        const warnings = [
          ...(isSame ? [`${both} are the same evaluation, so comparing them is meaningless`] : []),
          ...(unlike.length > 0
            ? [`${both} are not comparable: ${unlike.join(", ")}; their difference is hard to interpret`]
            : []),
          ...(isPartial
            ? [
                record === null
                  ? `${both} have no prompt in common, so no rollouts are paired`
                  : `${record.n_pairs} rollouts of shared prompts are paired, of ${evaluations[0]!.evaluation.details.length} and ` +
                    `${evaluations[at + 1]!.evaluation.details.length}`,
              ]
            : []),
        ];
        for (const warning of warnings) {
          if (json) output.alert(warning);
          else output.result(`\nWarning: ${warning}`);
        }
      }
      for (const { label, evaluation } of evaluations)
        for (const line of doubtLines(evaluation)) {
          if (json) output.alert(`${label}: ${line}`);
          else output.result(`\n${label}: ${line}`);
        }
      for (const hack of hacks) if (hack !== null && !json) output.result(`\n${hack}`);
      const doubts = evaluations.flatMap(({ label, evaluation }) =>
        doubtsOfFigures(doubtsOfEvaluation(evaluation.summary)).map((doubt) => ({
          ...doubt,
          reason: `in ${label} ${doubt.reason}`,
        })),
      );
      if (doubts.length > 0) throw new NoVerdictError("compare", doubts);
    });
}

/** The path without what all paths have in common at the end, such as "/evaluation.json". */
function labelOf(path: string, paths: readonly string[]): string {
  const partsOf = (each: string) => each.replace(/\.json$/u, "").split("/");
  const parts = paths.map(partsOf);
  let common = 0;
  while (
    parts.every((each) => each.length > common + 1 && each.at(-1 - common) === parts[0]!.at(-1 - common))
  )
    common += 1;
  const own = partsOf(path);
  const isOnlyOne = new Set(paths).size === 1;
  const kept = !isOnlyOne && common > 0 ? own.slice(0, -common) : own;
  return kept.at(-1)!;
}
