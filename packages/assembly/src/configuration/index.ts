export { registerKinds, DEFAULT_TYPES, findKind, kindsOf } from "./registry.js";
export { configurationJsonSchema, sectionLeaves } from "./json-schema.js";
export { MODULE_DEADLINE, type ScoreCache } from "./kind-schema.js";
export { parseOverride, type Override, type SetOverride } from "./override.js";
export { presetConfiguration, presetNames, presetPath, relativePath, type PresetOptions } from "./presets.js";
export {
  parseConfiguration,
  parseKindSection,
  readConfiguration,
  stringifyConfiguration,
  type ReadOptions,
} from "./read.js";
export { isProgramReference, programName, programReference } from "./program.js";
export {
  checkpointOf,
  configuredFiles,
  configuredModels,
  partModels,
  sectionModels,
  type ConfiguredFile,
  type ConfiguredModel,
  type ModelSetting,
  type PartModel,
} from "./references.js";
export { configurationSettings } from "./resume.js";
export { generationSchema } from "./generation-schema.js";
export { EMBEDDED, configurationSchema, type Configuration } from "./schema.js";
export { configurationTemplate, type TemplateOptions } from "./template.js";
export type { ModuleRole, StandardSchema, TextScorer, TurnScorer, UserKind } from "./user-kind.js";
export { isModuleReference, loadUserModule, type UserModule } from "./user-module.js";
