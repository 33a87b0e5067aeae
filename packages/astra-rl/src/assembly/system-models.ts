import type { Scorer, System } from "../core/index.js";
import { JudgeScorer, ServedModel } from "../http/index.js";
import { ComposedScorer } from "../scorer/index.js";

/** All models of a system; null for a system that does not tell. */
export function modelsOf(system: System): object[] | null {
  const { parts } = system as { parts?: Readonly<Record<string, unknown>> };
  if (parts === undefined) return null;
  const { tester, otherTesters, target, otherTargets, likelihood } = parts;
  const all = [tester, otherTesters, target, otherTargets, likelihood].flat();
  return all.filter((model) => typeof model === "object" && model !== null);
}

/** The second scorers of evaluations, which are no part of a system and are freed with it. */
export const secondScorers = new WeakMap<System, Scorer>();

/** The models of a system that a server runs, the judges of its evaluations included. */
export function servedModels(system: System): ServedModel[] {
  const { scorer } = (system as { parts?: { scorer?: Scorer } }).parts ?? {};
  const judges = [scorer, secondScorers.get(system)].flatMap(judgesIn);
  return [...(modelsOf(system) ?? []), ...judges].filter((model) => model instanceof ServedModel);
}

function judgesIn(scorer: Scorer | undefined): ServedModel[] {
  if (scorer instanceof JudgeScorer) return [scorer.served];
  return scorer instanceof ComposedScorer ? scorer.parts.flatMap(judgesIn) : [];
}
