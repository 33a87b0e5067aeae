export { ArchiveSampler, archiveSamplerKind, type ArchiveSamplerOptions } from "./archive-sampler.js";
export type { Opening } from "./archive.js";
export {
  FewShotSampler,
  fewShotSamplerKind,
  type Case,
  type FewShotSamplerOptions,
} from "./few-shot-sampler.js";
export { GoalSampler, goalSamplerKind } from "./goal-sampler.js";
