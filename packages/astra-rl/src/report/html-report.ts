import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { AstraError } from "@astra-rl/torch";
import type { ReportEvaluation, ReportRecord } from "../records/index.js";
import { visibleJson } from "./visible.js";

// The same relative place from src/report and from dist/report.
const PAGE = fileURLToPath(new URL("../../dist/viewer/report.html", import.meta.url));

/** Where the page keeps its records; packages/viewer/index.html has it once. */
const PLACE = '<script type="application/json" id="records">null</script>';

/**
 * One file that opens from disk, needs no network, and holds the records.
 *
 * @throws AstraError where the page was not built
 */
export function htmlReport(record: ReportRecord): string {
  if (!existsSync(PAGE)) {
    throw new AstraError(`the report's page is not built: there is no ${PAGE}; run: npm run setup`);
  }
  const page = readFileSync(PAGE, "utf8");
  const at = page.indexOf(PLACE);
  if (at < 0) throw new AstraError(`internal: ${PAGE} has no place for the records`);
  const data = PLACE.replace("null", () => embeddedJson(withoutRepetition(record)));
  return page.slice(0, at) + data + page.slice(at + PLACE.length);
}

/**
 * JSON that can stand inside a script element: no `<`, with which a text could end the element or open a comment, and
 * none of the characters that a terminal or an editor would obey.
 */
export function embeddedJson(value: unknown): string {
  return visibleJson(JSON.stringify(value)).replaceAll("<", "\\u003c");
}

/** Without the contexts that the turns before them say already. */
function withoutRepetition(record: ReportRecord): ReportRecord {
  const evaluations = record.evaluations.map((evaluation): ReportEvaluation => ({
    ...evaluation,
    details: evaluation.details.map(({ per_turn, ...detail }) => ({
      ...detail,
      per_turn: per_turn.map((turn, index) => (index === 0 ? turn : { ...turn, context: "" })),
    })),
  }));
  return { ...record, evaluations };
}
