// Checkpoints in memory, each loaded once for all its roles. Must not depend on the use of a model.
export { fastestTypes, type ComputeTypes, type ComputeTypesChoice } from "./compute-types.js";
export {
  ModelShelf,
  type InferenceDType,
  type ModelRole,
  type ModelShelfOptions,
  type ModelSource,
  type ModelSources,
} from "./model-shelf.js";
export {
  checkModelFormat,
  formatOf,
  makeFormat,
  modelFormat,
  modelFormatShape,
  type FormattedModel,
  type ModelFormat,
} from "./model-format.js";
export { silentKind, SilentModel } from "./silent-model.js";
