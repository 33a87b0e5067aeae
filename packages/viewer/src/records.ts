import type { ReportRecord } from "@astra-rl/records";

/** The record that this page shows; it is written into the page by the release that the page belongs to. */
const KNOWN_VERSION = 3;

/** Whether the page asks a server for its records. */
export function isLive(text: string): boolean {
  try {
    return (JSON.parse(text) as { live?: unknown } | null)?.live === true;
  } catch {
    return false;
  }
}

/** The records that the file holds, or a sentence that says why they cannot be shown. */
export function parseReport(text: string): ReportRecord | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return "The records in this file are damaged: they are no JSON.";
  }
  if (value === null) return "This is the empty page; astra-rl report fills records in.";
  const record = value as ReportRecord;
  if (record.version !== KNOWN_VERSION) {
    return `The records have version ${String(record.version)}, and this page reads version ${KNOWN_VERSION}.`;
  }
  return record;
}
