/**
 * Records as reports, with model output escaped; a page over run folders, live while they are written; and what was found, in
 * the formats of other tools. It must not know models, tensors, or how runs are trained.
 *
 * @module @astra-rl/report
 */
export * from "./report/index.js";
export * from "./gate/index.js";
