export { PROMPT_SPLITS, defaultPrompts, type PromptSplit } from "./default-prompts.js";
export {
  EMBEDDED_SCORER_LIMITS,
  EmbeddedToxicityScorer,
  embeddedScorerKind,
} from "./embedded-toxicity-scorer.js";
