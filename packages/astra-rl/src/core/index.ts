// Interfaces and the data that flows between stages. It must not depend on any stage, model or file format: stages do
// not import each other, they only share what is here.
export * from "./algorithm.js";
export * from "./checks.js";
export * from "./credit.js";
export * from "./dispose-once.js";
export * from "./embedder.js";
export * from "./evaluator.js";
export * from "./failure.js";
export * from "./graph.js";
export * from "./growth.js";
export * from "./loads.js";
export * from "./metrics-logger.js";
export * from "./model.js";
export * from "./next-turn.js";
export * from "./node.js";
export * from "./noted-message.js";
export * from "./graph-record.js";
export * from "./turn-tokens.js";
export * from "./reward-term.js";
export * from "./sampler.js";
export * from "./scorer.js";
export * from "./state.js";
export * from "./system.js";
export * from "./together.js";
export * from "./token-table.js";
export * from "./within.js";
export {
  drawingAs,
  isEpisodeSeed,
  nextKeys,
  noteSaid,
  type EpisodeSeed,
  type NodeKey,
  type Purpose,
} from "./draw.js";
export { overrides } from "./twins.js";
// shim
export type { Json } from "../options/index.js";
export { dot } from "../evaluation/diversity/dot.js";
export { failureCause, failureSchema, likelihoodSchema, RESPONSE_NOTES, type Failure, type FailureCause, type Likelihood, type ResponseNote } from "../records/turn-record.js";
