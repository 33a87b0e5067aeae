// Models behind one interface, and what a turn is worth. A system must not know samplers, algorithms or training.
export { ASTSystem, type ASTSystemOptions } from "./ast-system.js";
export { HFASTSystem, type HFASTSystemOptions } from "./hf-ast-system.js";
export { HFEvaluationSystem, type HFEvaluationSystemOptions } from "./hf-evaluation-system.js";
export {
  DEFAULT_SAMPLING,
  LanguageModelSystem,
  type GenerationOptions,
  type LanguageModelSystemOptions,
  type SystemModels,
} from "./language-model-system.js";
export { ModelRole, type ModelRoleOptions, type RoleName, type Utterance } from "./model-role.js";
export type { LoRAOptions } from "./lora-tester.js";
export type { InferenceDType, ModelSource } from "./model-shelf.js";
export type { SpokenTokens, TurnTokens } from "./turn-tokens.js";
