// Grows trees of turns through a system. A sampler must not know models, tokens, rewards' meaning or algorithms.
export { ASTSampler, astSamplerKind, turnsOfTree, type ASTSamplerOptions, type Tip } from "./ast-sampler.js";
