/**
 * Agents as targets: what has sessions, calls tools, and may be unable to go back. It must not know systems, how a run is
 * assembled, or the command line.
 *
 * @module @astra-rl/agents
 */
export { AgentModel, type AgentModelOptions, type SessionCounts } from "./agent-model.js";
export {
  LimitError,
  LostSessionError,
  type Agent,
  type AgentReply,
  type Session,
  type SessionStart,
  type SessionTurn,
  type Spending,
} from "./agent.js";
export {
  ClassAgent,
  FunctionAgent,
  isAgent,
  isAgentExport,
  isSession,
  modelOfAgent,
  type AgentFunction,
  type Said,
} from "./function-agent.js";
export { HTTPAgent, type HTTPAgentOptions } from "./http-agent.js";
export { httpAgentKind, loadTools, localAgentKind, openaiAgentKind } from "./kinds.js";
export { LocalTools } from "./local-tools.js";
export { ServedTools } from "./served-tools.js";
export { MOST_CHARACTERS } from "./open-session.js";
export { SessionLedger, type LeftOpen } from "./session-ledger.js";
export { readToolFixture, type Tool, type ToolContext, type Tools } from "./tool.js";
export { ToolAgent, type ToolAgentOptions, type ToolAnswer, type ToolModel } from "./tool-agent.js";
export { sessionOptions, sessionShape, type SessionOptions } from "./session-options.js";
