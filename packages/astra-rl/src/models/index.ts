// Checkpoints in memory: each loaded once, however many roles it plays. It must not know what a model is used for.
export { fastestTypes, type ComputeTypes, type ComputeTypesChoice } from "./compute-types.js";
export { ModelShelf, type InferenceDType, type ModelShelfOptions, type ModelSource } from "./model-shelf.js";
