export { assembleEvaluationSystem, assembleReward, assembleSystem } from "./assemble-system.js";
export {
  assembleAlgorithm,
  assembleCredit,
  assembleEvaluator,
  assembleLoggers,
  assembleSampler,
  assembleTrainer,
  trustsEmbeddedScorer,
} from "./assemble.js";
export { modelFormats, type ModelFormats, withToday } from "./model-formats.js";
export { identityOf, modelIdentity } from "./model-identity.js";
export { embeddedConfigurationPath, isEmbedded, modelSource } from "./model-source.js";
export { assembleEmbedder, assembleScorer, makePart, makeScorer, type MakeScorerOptions } from "./parts.js";
export { namesOf, type AssembledTrainer, type Part, type ProgramParts } from "./program-parts.js";
export { loadPrompts, trainingPromptsOf } from "./prompts.js";
export { withRecorded, withSettled, writeResolvedConfiguration } from "./resolved-configuration.js";
export { readScorerSpec } from "./scorer-spec.js";
export { servedModels } from "./system-models.js";
export { checkWindows } from "./windows.js";
