import type { Embedder, Scorer, System, Reward } from "@astra-rl/method";
import { JudgeScorer, ServedModel } from "@astra-rl/http";
import { ComposedScorer } from "@astra-rl/scorers";

/** All models of a system; null for a system that does not list them. */
export function modelsOf(system: System): object[] | null {
  const { parts } = system as { parts?: Readonly<Record<string, unknown>> };
  if (parts === undefined) return null;
  const { tester, otherTesters, target, otherTargets, likelihood } = parts;
  const all = [tester, otherTesters, target, otherTargets, likelihood].flat();
  return all.filter((model) => typeof model === "object" && model !== null);
}

/** The scorers, reward and embedder of a run, freed with its system. */
export interface Judges {
  scorer: Scorer;
  embedder: Embedder;
  reward: Reward;
  /** That of evaluations, if they have one. */
  second?: Scorer;
}

/** The judges of a system created from a configuration. A custom system need not know them. */
export const evaluatorsOf: WeakMap<System, Judges> = new WeakMap();

/** The models of a system that a server runs, the judges of its evaluations included. */
export function servedModels(system: System): ServedModel[] {
  const { scorer } = (system as { parts?: { scorer?: Scorer } }).parts ?? {};
  const judges = [scorer, evaluatorsOf.get(system)?.second].flatMap(judgesIn);
  return [...(modelsOf(system) ?? []), ...judges].filter((model) => model instanceof ServedModel);
}

function judgesIn(scorer: Scorer | undefined): ServedModel[] {
  if (scorer instanceof JudgeScorer) return [scorer.served];
  return scorer instanceof ComposedScorer ? scorer.parts.flatMap(judgesIn) : [];
}
