// Interfaces and the data that flows between stages. It must not know any stage, any model or any file format:
// stages do not import each other, they meet here.
export { Algorithm, type LearningRateGroup, type StepResult } from "./algorithm.js";
export {
  checkCount,
  checkEntropy,
  checkLogprobs,
  checkPaired,
  checkRewards,
  checkSameTokens,
  checkValues,
  ContractError,
  NotFiniteContractError,
  type TensorRules,
} from "./checks.js";
export { closest } from "./closest.js";
export {
  accountingFor,
  isRewarded,
  rewardCredit,
  type Credit,
  type CreditAccount,
  type CreditTable,
} from "./credit.js";
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
  isRecordable,
  messageOf,
  RecordedFailure,
  type Failure,
  type RetryOptions,
} from "./failure.js";
export { Graph, type GraphFields, type GraphJSON } from "./graph.js";
export { groupAdvantages, type GroupAdvantageOptions } from "./group-advantages.js";
export {
  defineKind,
  type Beside,
  type Kind,
  type KindNeeds,
  type KindParts,
  type KindSection,
  type LoadableSystem,
  type Made,
  type Misfit,
  type MakeScorer,
  type Role,
  type RunnableTrainer,
  type Sections,
} from "./kind.js";
export { requireLoaded, type Loads } from "./loads.js";
export { MEMORY_ADVICE, requireMemoryForUpdates, withMemoryAdvice } from "./memory-advice.js";
export { scalarsOf, type LoggedRun, type LoggedValues, type MetricsLogger } from "./metrics-logger.js";
export { readNamedFile, readStandardInput, readTextFile } from "./read-text-file.js";
export { DeadlineError, within } from "./within.js";
export { nextTurn } from "./next-turn.js";
export {
  checkJudged,
  jsonOf,
  likelihoodOf,
  Node,
  type Assessment,
  type JSONOf,
  type JudgedTurn,
  type Likelihood,
  type NodeFactory,
  type NodeFields,
  type NodeJSON,
  type ResponseOf,
  type TokensRecord,
  type TurnFields,
} from "./node.js";
export {
  dotted,
  functionOption,
  hasMethods,
  objectOption,
  parseOptions,
  requireList,
  valueAt,
} from "./options.js";
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
export type { Json, Stateful } from "./state.js";
export { Growth, type ExpandRequest, type Outcome } from "./growth.js";
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
