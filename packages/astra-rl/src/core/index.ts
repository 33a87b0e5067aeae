// Interfaces and the data that flows between stages. It must not know any stage, any model or any file format:
// stages do not import each other, they meet here.
export { Algorithm, type LearningRateGroup, type StepResult } from "./algorithm.js";
export {
  checkCount,
  checkPaired,
  checkRewards,
  checkSameTokens,
  checkTable,
  ContractError,
  NotFiniteContractError,
  type TableRules,
} from "./checks.js";
export { isRewarded, rewardCredit, type Credit, type CreditTable } from "./credit.js";
export { disposeOnce } from "./dispose-once.js";
export {
  isEpisodeSeed,
  nextKeys,
  noteSaid,
  type DrawKey,
  type EpisodeSeed,
  type NodeKey,
  type Purpose,
} from "./draw.js";
export { dot, Embedder } from "./embedder.js";
export {
  Evaluator,
  type EvaluateOptions,
  type GraphMetrics,
  type Metric,
  type Metrics,
} from "./evaluator.js";
export {
  attempt,
  attemptRows,
  FailedMessage,
  failureSchema,
  isRecordable,
  messageOf,
  RecordedFailure,
  type Failure,
  type RetryOptions,
} from "./failure.js";
export { Graph, type GraphFields, type GraphJSON } from "./graph.js";
export { requireLoaded, type Loads } from "./loads.js";
export { scalarsOf, type LoggedRun, type LoggedValues, type MetricsLogger } from "./metrics-logger.js";
export { DeadlineError, within } from "./within.js";
export { nextTurn } from "./next-turn.js";
export {
  checkJudged,
  jsonOf,
  likelihoodOf,
  likelihoodSchema,
  Node,
  type Assessment,
  type JSONOf,
  type JudgedTurn,
  type Likelihood,
  type NodeFactory,
  type NodeFields,
  type NodeJSON,
  type ResponseOf,
  type TurnFields,
  type TurnJSON,
} from "./node.js";
export type { RewardTerm, Turn } from "./reward-term.js";
export { EPISODES_ONLY, Sampler, type EvalRolloutOptions, type SamplerState } from "./sampler.js";
export {
  checkScore,
  distinctItems,
  judgedText,
  keyOf,
  scoreItems,
  Scorer,
  scorerOption,
  type Exchange,
  type Judged,
  type Score,
  type ScoreFailure,
  type ScoreOutcome,
} from "./scorer.js";
export { Stateless, type Json, type Stateful } from "./state.js";
export { expand, type ExpandRequest, type Outcome } from "./growth.js";
export {
  Conversation,
  Message,
  type From,
  type GenerateOptions,
  type Model,
  type Sampled,
  type Tester,
  type TesterOutput,
  type TesterWants,
  type Work,
  type WorkCounters,
} from "./model.js";
export {
  ENTROPY_UNKNOWN,
  hasValues,
  requireNeeds,
  System,
  ValueFunctionSystem,
  type PromptOf,
  type Returned,
  type SystemNeed,
  type ValueFunction,
} from "./system.js";
export { TokenTable } from "./token-table.js";
export { overrides } from "./twins.js";
