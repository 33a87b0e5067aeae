import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Command } from "@commander-js/extra-typings";
import { fileDigest, UsageError, writeFileAtomic } from "@astra-rl/base";
import type { EvaluationRecord } from "@astra-rl/records";
import { readReport } from "@astra-rl/report";
import { readEvaluation, createOutput, type Streams } from "@astra-rl/assembly/program";
import { testerCard } from "./tester-card.js";

/** `astra-rl card RUN`: rewrites the card of a run's best tester. */
export function cardCommand(streams: Streams) {
  return new Command("card")
    .description(
      "Write the model card of a run's best tester: README.md in checkpoints/best, in the hub's format",
    )
    .argument("<run>", "run folder")
    .option("--evaluation <file>", "an evaluation of the tester on other prompts, written by eval --output")
    .option("--quiet", "errors only", false)
    .action((folder, { evaluation, quiet }) => {
      const output = createOutput(streams, { quiet });
      const file = writeCard(folder, evaluation);
      if (file === null)
        throw new UsageError(
          "no-checkpoint",
          `${folder}: has no checkpoints/best, which evaluations during training write`,
        );
      output.note(`Wrote ${file}`);
    });
}

/**
 * Writes the card of a run's best checkpoint.
 *
 * @param evaluation a file with an evaluation of it. Default: the one by which it was chosen
 * @returns the card's path; null without such a checkpoint
 */
export function writeCard(folder: string, evaluation?: string): string | null {
  const best = join(folder, "checkpoints", "best");
  if (!existsSync(best)) return null;
  const [run] = readReport([folder], { graphs: 1 }).runs;
  const own = join(best, "evaluation.json");
  const step = existsSync(own) ? stepIn(own) : null;
  const chosenBy = run?.evaluations.find((each) => each.step === step);
  const given = evaluation === undefined ? null : readEvaluation(evaluation);
  if (given !== null) requireEvaluationOf(best, given, evaluation!);
  const card = join(best, "README.md");
  writeFileAtomic(card, [
    testerCard({
      configuration: run?.configuration ?? {},
      run: run?.run ?? null,
      evaluation: given ?? chosenBy ?? null,
      isChosenBy: given === null,
      step,
      format: checkpointFormat(best),
    }),
  ]);
  return card;
}

/** The library that loads a checkpoint's weights; null if only this toolbox restores them, into their system. */
export function checkpointFormat(checkpoint: string): "transformers" | "peft" | null {
  const has = (name: string) => existsSync(join(checkpoint, name));
  return has("adapter_config.json") ? "peft" : has("config.json") ? "transformers" : null;
}

/** @throws UsageError for an evaluation of another tester than the checkpoint: its figures would be read as this one's */
function requireEvaluationOf(checkpoint: string, { measured }: EvaluationRecord, where: string): void {
  const files = Object.entries(measured?.tester.files ?? {});
  const differs = files.filter(([name, digest]) => {
    const path = join(checkpoint, name);
    return !existsSync(path) || fileDigest(path) !== digest;
  });
  if (files.length > 0 && differs.length === 0) return;
  const tester =
    measured === undefined ? "a tester that it does not name" : `the tester ${measured.tester.model}`;
  const reason =
    differs.length === 0
      ? "of which it records no files"
      : `whose ${differs.map(([name]) => name).join(", ")} ${differs.length === 1 ? "is" : "are"} not the checkpoint's`;
  throw new UsageError(
    "other-tester",
    `${where}: is an evaluation of ${tester}, ${reason}; evaluate this tester with eval --tester ` +
      `${checkpoint} --output FILE`,
  );
}

/** The training step of an evaluation; null where the file does not say. */
function stepIn(path: string): number | null {
  try {
    const { step } = JSON.parse(readFileSync(path, "utf8")) as { step?: unknown };
    return typeof step === "number" ? step : null;
  } catch (cause) {
    throw new UsageError("not-json", `${path}: is not valid JSON; the checkpoint is damaged`, { cause });
  }
}
