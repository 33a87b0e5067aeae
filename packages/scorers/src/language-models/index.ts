export {
  LLAMA_GUARD_CATEGORIES,
  LlamaGuardScorer,
  llamaGuardScorerKind,
  type LlamaGuardMode,
  type LlamaGuardOptions,
} from "./llama-guard-scorer.js";
export {
  LocalJudgeScorer,
  localJudgeScorerKind,
  type LoadedJudge,
  type LocalJudgeOptions,
} from "./local-judge-scorer.js";
