// Creates the objects of a run from a configuration: models, system, sampler, algorithm, trainer and evaluator. Must
// not know: terminals, arguments, exit codes.
export {
  assembleAlgorithm,
  assembleCredit,
  assembleEvaluator,
  assembleLoggers,
  assembleSampler,
  assembleTrainer,
  trustsEmbeddedScorer,
  type AssembledTrainer,
} from "./assemble.js";
export { assembleEvaluationSystem, assembleReward, assembleSystem } from "./assemble-system.js";
export { modelFormats, withToday, type ModelFormats } from "./model-formats.js";
export { embeddedConfigurationPath, isEmbedded, modelSource } from "./model-source.js";
export { loadPrompts, trainingPromptsOf } from "./prompts.js";
export { withRecorded, withSettled, writeResolvedConfiguration } from "./resolved-configuration.js";
export {
  describeMeasured,
  engineChange,
  modelIdentity,
  recordSession,
  recordStop,
  type MeasuredOptions,
  packageVersion,
} from "./run-record.js";
export { depthOf, NO_LIKELIHOOD, searchProbes, type SearchOptions } from "./search-probes.js";
export { assembleEmbedder, assembleScorer, makePart, makeScorer, type MakeScorerOptions } from "./parts.js";
export {
  keepAnswers,
  probeServers,
  spendingNotes,
  spendingNotesOfRanks,
  type ServerFindings,
} from "./servers.js";
export { checkWindows } from "./windows.js";
export { readScorerSpec } from "./scorer-spec.js";
