/**
 * Models behind servers, as testers, targets, likelihoods and judges. It must not know systems, how a run is assembled, or
 * the command line.
 *
 * @module @astra-rl/http
 */
export { BudgetError, type Cost } from "./budget.js";
export { HTTPLikelihood } from "./http-likelihood.js";
export { HTTPModel, HTTPTester, type HTTPModelOptions } from "./http-model.js";
export { AnswerJournal } from "./journal.js";
export { JudgeScorer, judgeKind, type JudgeOptions } from "./judge-scorer.js";
export { serverKinds } from "./kind.js";
export type { Clock } from "./limiter.js";
export type { ServerOptions } from "./options.js";
export type { ServerTraits } from "./probe.js";
export { ServedModel } from "./served-model.js";
export type { ServerSurroundings } from "./server.js";
