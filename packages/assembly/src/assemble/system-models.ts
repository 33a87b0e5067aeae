import { AgentModel } from "@astra-rl/agents";
import type { Embedder, Scorer, System, Reward } from "@astra-rl/method";
import { JudgeScorer, ServedModel } from "@astra-rl/http";
import { PlainFormat, type LocalModel } from "@astra-rl/lm";
import { ComposedScorer } from "@astra-rl/scorers";

/** The scorers, reward and embedder of a run, freed with its system. */
export interface Evaluators {
  scorer: Scorer;
  embedder: Embedder;
  reward: Reward;
  /** Those of evaluations that have them: a second one, of refusals of benign prompts, and of tasks that are done. */
  second?: Scorer;
  refusal?: Scorer;
  utility?: Scorer;
}

/** A system, and what was made beside it from the same configuration. A custom system need not know its evaluators. */
export interface AssembledSystem<T extends System = System> {
  system: T;
  evaluators: Evaluators;
}

/** All models of a system; null for a system that does not list them. */
export function modelsOf(system: System): object[] | null {
  const { parts } = system as { parts?: Readonly<Record<string, unknown>> };
  if (parts === undefined) return null;
  const { tester, otherTesters, target, otherTargets, likelihood } = parts;
  const all = [tester, otherTesters, target, otherTargets, likelihood].flat();
  return all.filter((model) => typeof model === "object" && model !== null);
}

/** The models of a system that may be local: others lack a format. */
export const localModels = (system: System) => (modelsOf(system) ?? []) as Partial<LocalModel>[];

/** The models that a server runs, judges of evaluations and of reward terms included, each once. */
export function servedModels({ system, evaluators }: AssembledSystem): ServedModel[] {
  const { parts = {} } = system as { parts?: { scorer?: Scorer; reward?: Reward } };
  const terms = [evaluators.reward, parts.reward].flatMap((reward) => reward?.terms ?? []);
  const ofTerms = terms.map(({ term }) => (term as { scorer?: Scorer | null }).scorer ?? undefined);
  const { scorer, second, refusal, utility } = evaluators;
  const judges = [scorer, parts.scorer, second, refusal, utility, ...ofTerms].flatMap(judgesIn);
  const models = (modelsOf(system) ?? []).flatMap((each) =>
    each instanceof AgentModel ? each.served : each,
  );
  return [...new Set([...models, ...judges])].filter((model) => model instanceof ServedModel);
}

/** The served models of a scorer and of those that it combines. */
export function judgesIn(scorer: Scorer | undefined): ServedModel[] {
  if (scorer instanceof JudgeScorer) return [scorer.served];
  return scorer instanceof ComposedScorer ? scorer.parts.flatMap(judgesIn) : [];
}

/** A model that reads messages one after the other without speakers; null if there is none. */
export function untoldModel(assembled: AssembledSystem): string | null {
  const { system } = assembled;
  if (modelsOf(system) === null) return "the system";
  const isUntold = ({ format }: Partial<LocalModel>) => format instanceof PlainFormat && !format.isMarked;
  const untold =
    localModels(system).find(isUntold) ?? servedModels(assembled).find(({ marksSpeakers }) => !marksSpeakers);
  return untold === undefined ? null : `the ${untold.name}`;
}
