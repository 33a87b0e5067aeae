// What a run is made of, as one YAML file: the schema, its defaults, and messages that point at a line. It stands above
// the stages, whose kinds and options it lists, and must not know how a run is put together, models or the command line.
export {
  configuredFiles,
  configuredModels,
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
  deviceSchema,
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
