// Grows trees of turns through a system. A sampler must not depend on models, tokens, algorithms or the meaning of
// rewards.
export { type Opening } from "./archive.js";
export { ArchiveSampler, archiveSamplerKind, type ArchiveSamplerOptions } from "./archive-sampler.js";
export {
  ASTSampler,
  astSamplerKind,
  turnsOfTree,
  type ASTSamplerOptions,
  type StopAt,
  type Tip,
} from "./ast-sampler.js";
export {
  FewShotSampler,
  fewShotSamplerKind,
  type Case,
  type FewShotSamplerOptions,
} from "./few-shot-sampler.js";
export { PathSampler, pathSamplerKind, type PathSamplerOptions } from "./path-sampler.js";
