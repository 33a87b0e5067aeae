export { backUp, backUpKind, type BackUpOptions } from "./back-up.js";
export {
  ContractError,
  NotFiniteContractError,
  checkCount,
  checkPaired,
  checkRewards,
  checkSameTokens,
  checkTable,
  type TableRules,
} from "./contract.js";
export { isRewarded, rewardCredit, type Credit, type CreditTable } from "./credit.js";
export { DeadlineError, within } from "./deadline.js";
export { drawingAs, isEpisodeSeed, nextKeys, type EpisodeSeed, type NodeKey, type Purpose } from "./draw.js";
export {
  FailedMessage,
  RecordedFailure,
  attempt,
  attemptRows,
  isRecordable,
  messageOf,
  type Attempt,
  type RetryOptions,
} from "./failure.js";
export {
  creditFromRecord,
  graphFromRecord,
  graphRecord,
  stringifyGraph,
  type GraphRecordOptions,
} from "./graph-record.js";
export {
  Graph,
  promptMessagesOf,
  type GraphFields,
  type GraphJSON,
  type PromptMessagesJSON,
} from "./graph.js";
export { expand, type ExpandRequest, type Outcome } from "./growth.js";
export { nextTurn } from "./next-turn.js";
export {
  Node,
  checkJudged,
  jsonOf,
  likelihoodOf,
  logprobsOf,
  type Assessment,
  type JSONOf,
  type JudgedTurn,
  type NodeFactory,
  type NodeFields,
  type NodeJSON,
  type ResponseOf,
  type TurnFields,
  type TurnJSON,
} from "./node.js";
export { doneBefore, NotedMessage, notesOf, type MessageNotes } from "./noted-message.js";
export { overrides } from "./overrides.js";
export { rewardCreditKind } from "./reward-credit.js";
export { Stateless, type Stateful } from "./state.js";
export { TokenTable } from "./token-table.js";
export { isEdited, tokensRecord } from "./turn-tokens.js";
