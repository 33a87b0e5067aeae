// Models behind one interface, composed of parts. A system must not depend on samplers, algorithms or training.
export { ModelPool } from "./model-pool.js";
export { ASTSystem } from "./ast-system.js";
export { TARGET_READS, type ASTSystemOptions, type SystemParts, type TargetReads } from "./system-parts.js";
export { HFASTSystem, type HFASTSystemOptions, type HFParts } from "./hf-ast-system.js";
export {
  HFEvaluationSystem,
  type HFEvaluationParts,
  type HFEvaluationSystemOptions,
} from "./hf-evaluation-system.js";
export { DEFAULT_SAMPLING, type GenerationOptions, type HFSystemOptions } from "./hf-parts.js";
