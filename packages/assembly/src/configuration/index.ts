export { registerKinds, DEFAULT_TYPES, findKind, kindsOf } from "./registry.js";
export { configurationJsonSchema, sectionLeaves } from "./json-schema.js";
export { MODULE_DEADLINE, type ScoreCache } from "./kind-schema.js";
export { parseOverride, type Override, type SetOverride } from "./override.js";
export { presetNames, presetPath } from "./presets.js";
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
export { generationSchema } from "./generation-schema.js";
export { EMBEDDED } from "./prompts-schema.js";
export { configurationSchema, type Configuration } from "./schema.js";
export {
  isClass,
  isLoadable,
  type ModuleRole,
  type StandardSchema,
  type TextScorer,
  type TurnScorer,
  type UserKind,
} from "./user-kind.js";
export { isModuleReference, loadUserModule, moduleParts, type UserModule } from "./user-module.js";
