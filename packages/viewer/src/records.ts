import type { ReportRecord } from "@astra-rl/records";

/** The record shown by this page, inserted by the same release. */
const KNOWN_VERSION = 3;

/** Whether the page loads its records from a server. */
export function isLive(text: string): boolean {
  try {
    return (JSON.parse(text) as { live?: unknown } | null)?.live === true;
  } catch {
    return false;
  }
}

/** The records in the file, or a sentence explaining why they cannot be shown. */
export function parseReport(text: string): ReportRecord | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return "The records in this file are damaged: they are not JSON.";
  }
  if (value === null) return "This is the empty page; astra-rl report inserts records.";
  const record = value as ReportRecord;
  if (record.version !== KNOWN_VERSION) {
    return `The records have version ${String(record.version)}, and this page reads version ${KNOWN_VERSION}.`;
  }
  return record;
}
