import type { ReportRecord, ReportRun } from "@astra-rl/records";
import { shown } from "./shown.js";

export type Section = Record<string, unknown> | undefined;

export const section = (value: unknown, key: string): Section => {
  const inner = (value as Section)?.[key];
  return typeof inner === "object" && inner !== null ? (inner as Section) : undefined;
};

export const textOf = (value: unknown): string | null =>
  typeof value === "string" || typeof value === "number" ? shown(String(value)) : null;

/** The last part of a path; a model id or an embedded name unchanged. */
export const shortName = (model: string) =>
  /^([/~.]|[A-Za-z]:)/.test(model) ? (model.split(/[/\\]/).filter(Boolean).at(-1) ?? model) : model;

/** The name of a model, given as a name or as a section. */
export function modelOf(setting: unknown): string | null {
  if (Array.isArray(setting))
    return setting.map((each) => shortName(modelOf(each) ?? "?")).join(", ") || null;
  const { path, model, type } = (typeof setting === "object" ? (setting ?? {}) : {}) as Record<
    string,
    unknown
  >;
  return textOf(setting) ?? textOf(path) ?? textOf(model) ?? textOf(type);
}

/** A role's model in a configuration; without one, it is the custom system's. */
export const roleOf = (configuration: ReportRun["configuration"], role: "tester" | "target"): string | null =>
  modelOf(section(configuration, "models")?.[role]) ?? textOf(section(configuration, "system")?.["type"]);

/** Which tester was trained against which target. */
export function titleOf({ runs, evaluations }: ReportRecord): string {
  const pairs = runs.flatMap(({ configuration }) => (configuration === null ? [] : [configuration]));
  const measured = evaluations.map((evaluation) => evaluation.measured).filter((found) => found !== null);
  const names = pairs.map((each) => [roleOf(each, "tester"), roleOf(each, "target")]);
  for (const { tester, target } of runs.length > 0 ? [] : measured)
    names.push([shown(tester.model), shown(target.model)]);
  const [first] = names;
  if (first === undefined) return "Evaluations";
  const others = new Set(names.map((pair) => JSON.stringify(pair))).size - 1;
  const [tester, target] = first.map((name) => shortName(name ?? "unknown"));
  const verb = runs.length > 0 ? "trained against" : "against";
  return `${tester} ${verb} ${target}${others > 0 ? `, and ${others} more` : ""}`;
}
