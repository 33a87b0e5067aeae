import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { AstraError } from "@astra-rl/base";
import type { ReportEvaluation, ReportRecord } from "@astra-rl/records";
import { visibleJson } from "./visible.js";

// The same relative path from src/report and dist/report.
const PAGE = fileURLToPath(new URL("../../dist/page/report.html", import.meta.url));

/** The placeholder for the records; it occurs once in packages/viewer/index.html. */
const PLACE = '<script type="application/json" id="records">null</script>';

/**
 * A self-contained HTML page with the records: it opens from disk and needs no network.
 *
 * @throws AstraError if the page was not built
 */
export function htmlReport(record: ReportRecord): string {
  return pageWith(withoutRepetition(record));
}

/** The page of `astra-rl view`, which requests the records from the server. */
const LIVE = { live: true };

/** Its policy allows requests to the server that it came from, and nothing else. */
export function viewPage(): { html: string; policy: string } {
  const html = pageWith(LIVE);
  const [element, report] = /<meta http-equiv="Content-Security-Policy" content="([^"]+)" \/>/u.exec(html)!;
  const policy = `${report!}; connect-src 'self'`;
  return {
    html: html.replace(element, () => element.replace(report!, () => policy)),
    policy: `${policy}; frame-ancestors 'none'`,
  };
}

function pageWith(data: unknown): string {
  if (!existsSync(PAGE)) {
    throw new AstraError(`the report's page is not built: there is no ${PAGE}; run: npm run setup`);
  }
  const page = readFileSync(PAGE, "utf8");
  const at = page.indexOf(PLACE);
  if (at < 0) throw new AstraError(`internal: ${PAGE} has no place for the records`);
  return page.slice(0, at) + PLACE.replace("null", () => embeddedJson(data)) + page.slice(at + PLACE.length);
}

/**
 * JSON that is safe inside a script element: without `<`, which could end the element or open a comment, and without
 * control characters that a terminal or an editor would interpret.
 */
export function embeddedJson(value: unknown): string {
  return visibleJson(JSON.stringify(value)).replaceAll("<", "\\u003c");
}

/** Removes contexts, which follow from earlier turns. */
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
