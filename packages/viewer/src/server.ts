import type { GraphEntry, GraphHits, MetricsRecord, ReportGraph, ReportRecord } from "@astra-rl/records";

/** A run's event from `/api/events`. */
export interface RunChange {
  run: string;
  metrics: MetricsRecord[];
  isReset: boolean;
  evaluations: boolean;
  graphs: boolean;
}

type Query = readonly (readonly [name: string, value: string | number])[];

const urlOf = (path: string, query: Query): string =>
  `/api/${path}?${new URLSearchParams(query.map(([name, value]) => [name, String(value)]))}`;

/** @throws Error with the server's message, or if it does not answer */
async function ask<T>(path: string, query: Query): Promise<T> {
  let response: Response;
  try {
    response = await fetch(urlOf(path, query));
  } catch {
    throw new Error("the server does not answer; is astra-rl view still running?");
  }
  const value = (await response.json()) as T & { error?: string };
  if (!response.ok) throw new Error(value.error ?? `the server answered ${response.status}`);
  return value;
}

const named = (name: string, values: readonly string[]): Query =>
  values.map((value) => [name, value] as const);

export const fetchReport = (runs: readonly string[], files: readonly string[]) =>
  ask<ReportRecord>("report", [...named("run", runs), ...named("file", files)]);

export const fetchEntries = (run: string, from: number) =>
  ask<{ from: number; total: number; entries: GraphEntry[] }>("graphs", [
    ["run", run],
    ["from", from],
  ]);

export const fetchGraph = (run: string, at: number) =>
  ask<ReportGraph>("graph", [
    ["run", run],
    ["at", at],
  ]);

export const searchGraphs = (runs: readonly string[], text: string) =>
  ask<GraphHits>("search", [...named("run", runs), ["text", text]]);

/** @param since the last step known of each run */
export const eventsUrl = (runs: readonly string[], since: readonly number[]) =>
  urlOf("events", [...named("run", runs), ...since.map((step) => ["since", step] as const)]);
