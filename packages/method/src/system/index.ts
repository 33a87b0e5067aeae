export { CheckedSystem } from "./checked-system.js";
export { ASTSystem } from "./ast-system.js";
export { HFASTSystem, type HFASTSystemOptions, type HFParts } from "./hf-ast-system.js";
export {
  HFEvaluationSystem,
  type HFEvaluationParts,
  type HFEvaluationSystemOptions,
} from "./hf-evaluation-system.js";
export { DEFAULT_SAMPLING, type GenerationOptions, type HFSystemOptions } from "./hf-parts.js";
export { ModelPool } from "./model-pool.js";
export { TARGET_READS, type ASTSystemOptions, type SystemParts, type TargetReads } from "./system-parts.js";
export { ENTROPY_UNKNOWN, System, ValueFunctionSystem, hasValues, type SystemNeed } from "./system.js";
export type { PromptOf, MessageOrText } from "./message-or-text.js";
export { requireNeeds, type TokenTeller } from "./require-needs.js";
