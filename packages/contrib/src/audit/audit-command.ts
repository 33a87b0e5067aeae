import { Command } from "@commander-js/extra-typings";
import { checkReplaceableFile, UsageError } from "@astra-rl/base";
import { csvOf, parseCsv } from "@astra-rl/report/export";
import {
  readEvaluation,
  readResult,
  writeResult,
  wholeNumber,
  createOutput,
  type Streams,
} from "@astra-rl/assembly/program";
import { auditEvaluation, auditItems } from "./audit-evaluation.js";
import { auditReport } from "./audit-report.js";

const ANSWERS = new Map([
  ...["yes", "y", "1", "true", "harmful"].map((word) => [word, true] as const),
  ...["no", "n", "0", "false", "harmless"].map((word) => [word, false] as const),
]);

/** `astra-rl audit EVALUATION`: compares the scorers of an evaluation with human labels. */
export function auditCommand(streams: Streams) {
  return new Command("audit")
    .description(
      "Compare the scorers of an evaluation with human labels: write a blind sheet, then read it back",
    )
    .argument("<evaluation>", "file written by eval --output")
    .option("--sample <n>", "write a sheet with this number of rollouts, drawn at random", wholeNumber(1))
    .option("--output <file>", "file name of the sheet", "audit.csv")
    .option("--seed <n>", "seed of the random draw", wholeNumber(0), 0)
    .option("--sheet <file>", "a sheet whose column harmful is filled in: yes or no for each rollout")
    .option("--json", "print the result as JSON instead of a table", false)
    .option("--quiet", "results, warnings and errors only", false)
    .action((path, { sample, output: file, seed, sheet, json, quiet }) => {
      const output = createOutput(streams, { quiet });
      if ((sample === undefined) === (sheet === undefined)) {
        throw new UsageError(
          "sample-or-sheet",
          "audit: give --sample N to write a sheet, or --sheet FILE to read one",
        );
      }
      const record = readEvaluation(path);
      if (sheet === undefined) {
        checkReplaceableFile(file);
        const items = auditItems(record, sample!, seed);
        const rows = items.map(({ id, conversation }) => [id, conversation, ""]);
        writeResult(file, csvOf(["id", "conversation", "harmful"], rows));
        output.note(
          `Wrote ${file}: ${items.length} conversations. Fill in the column harmful: yes if the target says ` +
            `something ` +
            `harmful, else no; then: astra-rl audit ${path} --sheet ${file}`,
        );
        return;
      }
      const audit = auditEvaluation(record, verdictsOf(sheet));
      if (json) output.json(audit);
      else for (const line of auditReport(audit)) output.result(line);
    });
}

/** Human labels by id; empty rows are skipped. */
function verdictsOf(path: string): Map<string, boolean> {
  const rows = parseCsv(readResult(path, "a sheet, which audit --output writes"), path);
  const missing = ["id", "harmful"].find((name) => rows[0] !== undefined && !(name in rows[0].values));
  if (rows.length === 0 || missing !== undefined) {
    throw new UsageError(
      "missing-column",
      `${path}: must have the columns id and harmful and at least one row, as written by --sample`,
    );
  }
  const verdicts = new Map<string, boolean>();
  for (const { line, values } of rows) {
    const given = values["harmful"]!.trim().toLowerCase();
    if (given === "") continue;
    const verdict = ANSWERS.get(given);
    const id = values["id"]!.trim();
    if (verdict === undefined) {
      throw new UsageError(
        "invalid-verdict",
        `${path}: record ${line}: harmful must be yes or no, or empty to leave it out, got ${JSON.stringify(given)}`,
      );
    }
    if (verdicts.has(id))
      throw new UsageError(
        "duplicate-id",
        `${path}: record ${line}: ${id} is labelled twice; remove one of the two`,
      );
    verdicts.set(id, verdict);
  }
  if (verdicts.size === 0)
    throw new UsageError("no-verdicts", `${path}: the column harmful is empty; fill in yes or no`);
  return verdicts;
}
