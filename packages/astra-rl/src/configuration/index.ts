// The YAML configuration of a run: schema, defaults, and errors with line numbers. It depends on the stages, whose
// kinds and options it lists. Must not know: how a run is assembled, models, the command line.
export {
  configuredFiles,
  checkpointOf,
  configuredModels,
  type ModelSetting,
  partModels,
  sectionModels,
  type ConfiguredFile,
  type ConfiguredModel,
  type PartModel,
} from "./references.js";
export { configurationJsonSchema, sectionLeaves } from "./json-schema.js";
export {
  parseConfiguration,
  parseKindSection,
  readConfiguration,
  stringifyConfiguration,
  type ReadOptions,
} from "./read.js";
export { parseOverride, type Override } from "./override.js";
export { configurationSettings } from "./resume.js";
export { DEFAULT_TYPES, findKind, kindsOf } from "./registry.js";
export {
  configurationSchema,
  EMBEDDED,
  generationSchema,
  type Configuration,
  type KindSection,
} from "./schema.js";
export { MODULE_DEADLINE, type ScoreCache } from "./kind-schema.js";
export { configurationReference } from "./reference.js";
export { configurationTemplate, type TemplateOptions } from "./template.js";
export type { StandardSchema, StepLogger, TextScorer, TurnScorer, UserKind } from "./user-kind.js";
export { isModuleReference, loadUserModule, type UserModule } from "./user-module.js";
export { presetConfiguration, presetNames, presetPath, relativePath, type PresetOptions } from "./presets.js";
