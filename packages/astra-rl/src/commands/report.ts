import { Command, Option } from "@commander-js/extra-typings";
import { checkReplaceableFile } from "@astra-rl/base";
import {
  CSV_TABLES,
  csvReport,
  htmlReport,
  markdownReport,
  readReport,
  visibleJson,
  type CsvTable,
} from "@astra-rl/report";
import type { ReportRecord } from "@astra-rl/records";
import { writeResult, wholeNumber, createOutput, type Streams } from "@astra-rl/assembly/program";

const FORMATS = {
  html: htmlReport,
  // Escaped line by line, to keep the line breaks of the indentation.
  json: (record: ReportRecord) =>
    `${JSON.stringify(record, null, 2).split("\n").map(visibleJson).join("\n")}\n`,
  csv: csvReport,
  markdown: (record: ReportRecord) => markdownReport(record),
} satisfies Record<string, (record: ReportRecord, table: CsvTable) => string>;
const NAMES = Object.keys(FORMATS) as (keyof typeof FORMATS)[];

/** `astra-rl report RUN|EVALUATION…`: reports runs and evaluations as an HTML page or in other formats. */
export function reportCommand(streams: Streams) {
  return new Command("report")
    .description("Write a report of runs and evaluations: curves, before and after, trees, attacks found")
    .argument(
      "<paths...>",
      "run folders, and files written by eval --output; the first and the last are compared",
    )
    .option(
      "--output <file>",
      'file to write; "-" is standard output (default: report.html; other formats: "-")',
    )
    .addOption(new Option("--format <name>", "format of the report").choices(NAMES).default("html" as const))
    .addOption(
      new Option("--table <name>", "with --format csv: what each row is")
        .choices(CSV_TABLES)
        .default("turns" as const),
    )
    .option("--graphs <n>", "maximum number of training graphs per run, evenly spaced", wholeNumber(1))
    .option("--quiet", "errors only", false)
    .action((paths, { output: given, format, table, graphs, quiet }) => {
      const output = createOutput(streams, { quiet });
      const file = given ?? (format === "html" ? "report.html" : "-");
      // Checked first, so that a refusal does not come after reading a large run.
      if (file !== "-") checkReplaceableFile(file);
      const record = readReport(paths, graphs === undefined ? {} : { graphs });
      const text = FORMATS[format](record, table);
      if (file === "-") {
        streams.stdout.write(text);
        return;
      }
      writeResult(file, text);
      output.note(`Wrote ${file}`);
    });
}
