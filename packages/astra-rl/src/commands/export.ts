import { statSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { Command, Option } from "@commander-js/extra-typings";
import { checkReplaceableFile, UsageError } from "@astra-rl/base";
import {
  attacksOfEvaluation,
  attacksOfGraph,
  EXPORT_FORMATS,
  exportAttacks,
  preferencePairs,
  preferencesText,
  type Attack,
  type ExportFile,
  type ExportFormatName,
  type ExportSource,
} from "@astra-rl/report/export";
import { linesOf, readReport } from "@astra-rl/report";
import { parseGraphRecord, type GraphRecord } from "@astra-rl/records";
import { readEvaluation, writeResult, createOutput, type Streams } from "@astra-rl/assembly/program";

const FORMATS = [...(Object.keys(EXPORT_FORMATS) as ExportFormatName[]), "preferences"] as const;

/** `astra-rl export EVALUATION|RUN`: found attacks in the format of another tool. */
export function exportCommand(streams: Streams) {
  const descriptions = Object.entries(EXPORT_FORMATS).map(
    ([name, { description }]) => `  ${name}: ${description}`,
  );
  return new Command("export")
    .description("Export found attacks in the format of another tool")
    .argument(
      "<source>",
      "file written by eval --output, or a run folder, of which the training graphs are used",
    )
    .addOption(new Option("--format <name>", "format of the export").choices(FORMATS).makeOptionMandatory())
    .requiredOption("--output <path>", 'file to write; "-" is standard output, for formats of one file')
    .option("--all", "export every conversation, not only those that led to harm", false)
    .option("--quiet", "errors only", false)
    .addHelpText(
      "after",
      `\nFormats:\n${descriptions.join("\n")}\n  preferences: pairs of siblings of a run's trees for TRL's DPOTrainer (JSON lines)`,
    )
    .action((path, { format, output: file, all, quiet }) => {
      const output = createOutput(streams, { quiet });
      if (file !== "-") checkReplaceable(file, format);
      const { files, count, leftOut } = exported(path, format, all);
      if (file === "-") {
        if (files.length > 1)
          throw new UsageError(
            "folder-required",
            `--output: ${format} is written as a folder; give its name`,
          );
        streams.stdout.write(files[0]!.content as string);
      } else {
        for (const { path: name, content } of files) writeResult(join(file, name), content);
      }
      const unfit = leftOut === 0 ? "" : `; ${leftOut} more cannot be expressed in this format`;
      output.note(
        `${count} ${format === "preferences" ? "pairs" : "conversations"}${file === "-" ? "" : ` in ${file}`}${unfit}`,
      );
    });
}

function checkReplaceable(file: string, format: string): void {
  if (format !== "dataset") checkReplaceableFile(file);
  else if (statSync(file, { throwIfNoEntry: false })?.isDirectory() === false) {
    throw new UsageError(
      "not-a-folder",
      `--output ${file}: is a file, but a data set is a folder; give another name`,
    );
  }
}

function exported(
  path: string,
  format: (typeof FORMATS)[number],
  all: boolean,
): { files: ExportFile[]; count: number; leftOut: number } {
  const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  if (format === "preferences") {
    if (!isFolder)
      throw new UsageError(
        "not-a-run-folder",
        "--format preferences: pairs are siblings of training graphs; give a run folder",
      );
    const pairs = graphsOf(path).flatMap(preferencePairs);
    if (pairs.length === 0)
      throw new UsageError(
        "no-pairs",
        `${path}: no siblings of its graphs differ in reward, so there are no pairs`,
      );
    return { files: [{ path: "", content: preferencesText(pairs) }], count: pairs.length, leftOut: 0 };
  }
  const { attacks, source } = isFolder ? ofRun(path) : ofEvaluation(path);
  const chosen = all ? attacks : withoutRepeats(attacks.filter(({ isHarmful }) => isHarmful));
  const { files, leftOut } = exportAttacks(format, chosen, source);
  return { files, count: chosen.length - leftOut, leftOut };
}

function ofRun(folder: string): { attacks: Attack[]; source: ExportSource } {
  const [run] = readReport([folder], { graphs: 1 }).runs;
  const { scorer, models, evaluation } = (run?.configuration ?? {}) as {
    scorer?: { type?: string };
    evaluation?: { threshold?: number };
    models?: { target?: string | { path?: string; model?: string } };
  };
  const target = models?.target;
  return {
    attacks: graphsOf(folder).flatMap((graph) => attacksOfGraph(graph, evaluation?.threshold)),
    source: {
      name: basename(resolve(folder)),
      scorer: scorer?.type ?? null,
      target: typeof target === "string" ? target : (target?.path ?? target?.model ?? null),
    },
  };
}

function ofEvaluation(path: string): { attacks: Attack[]; source: ExportSource } {
  const record = readEvaluation(path);
  const { measured } = record;
  return {
    attacks: attacksOfEvaluation(record),
    source: {
      name: basename(path),
      scorer: measured?.scorer.type ?? null,
      target: measured?.target?.model ?? null,
    },
  };
}

const graphsOf = (folder: string): GraphRecord[] =>
  [...linesOf(join(folder, "graphs.jsonl"))].map(({ text, where }) => parseGraphRecord(text, where));

/** One of several attacks with the same messages. */
function withoutRepeats(attacks: readonly Attack[]): Attack[] {
  const byTexts = new Map(
    attacks.map((attack) => [
      JSON.stringify([attack.prompt, attack.turns.map(({ probe }) => probe)]),
      attack,
    ]),
  );
  return [...byTexts.values()];
}
