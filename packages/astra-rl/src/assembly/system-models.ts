import type { System } from "../core/index.js";
import { ServedModel } from "../http/index.js";

/** All models of a system; null for a system that does not tell. */
export function modelsOf(system: System): object[] | null {
  const { parts } = system as { parts?: Readonly<Record<string, unknown>> };
  if (parts === undefined) return null;
  const { tester, otherTesters, target, otherTargets, likelihood } = parts;
  const all = [tester, otherTesters, target, otherTargets, likelihood].flat();
  return all.filter((model) => typeof model === "object" && model !== null);
}

/** The models of a system that a server runs. */
export const servedModels = (system: System): ServedModel[] =>
  (modelsOf(system) ?? []).filter((model) => model instanceof ServedModel);
