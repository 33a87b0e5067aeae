import { AstraError } from "@astra-rl/base";
import papaparse from "papaparse";

/**
 * CSV (RFC 4180), safe to open in a spreadsheet: a text that a spreadsheet would take for a formula begins with an apostrophe
 * (OWASP, CSV injection). Line ends are CRLF.
 *
 * @param rows in the order of the columns; null is empty
 */
export function csvOf(
  columns: readonly string[],
  rows: readonly (readonly (string | number | boolean | null)[])[],
): string {
  const options = { escapeFormulae: FORMULA, newline: "\r\n" };
  return `${papaparse.unparse({ fields: [...columns], data: rows.map((row) => [...row]) }, options)}\r\n`;
}

// Spreadsheets treat a text that begins with one of these, also in full width, as a formula; some skip leading white
// space.
const FORMULA = /^[\s\p{Cf}]*[=+\-@|\uFF1D\uFF0B\uFF0D\uFF20\uFF5C]/u;

/** A line of a CSV file with its values, by column. */
export interface CsvLine {
  /** Of the record in the file, from 2: the first one after the header. */
  line: number;
  values: Readonly<Record<string, string>>;
}

/**
 * Reads CSV with a header, separated by commas, semicolons or tabs, as spreadsheets write it.
 *
 * @throws AstraError for invalid CSV; the message begins with `where`
 */
export function parseCsv(text: string, where: string): CsvLine[] {
  const { data, errors } = papaparse.parse<Record<string, string>>(text.replace(/^\uFEFF/u, ""), {
    header: true,
    skipEmptyLines: "greedy",
    delimitersToGuess: [",", ";", "\t"],
  });
  const error = errors.find(({ type }) => type !== "Delimiter");
  if (error !== undefined) {
    throw new AstraError(
      `${where}: record ${(error.row ?? 0) + 2}: ${error.message}; save the sheet as CSV again`,
    );
  }
  return data.map((values, at) => ({ line: at + 2, values }));
}
