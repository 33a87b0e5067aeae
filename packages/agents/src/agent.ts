// What an agent is: something with sessions. Must not know: conversations, trees, how a model uses sessions.
import { AstraError } from "@astra-rl/base";
import type { ServedModel } from "@astra-rl/http";
import type { ToolCall } from "@astra-rl/lm";
import type { ResponseNote } from "@astra-rl/records";

/** What a turn costs, counted within its session. */
export interface Spending {
  /** Calls of tools. */
  calls: number;
  /** Tokens that the agent's models read and wrote. */
  tokens: number;
  dollars: number;
}

export const NO_SPENDING: Spending = { calls: 0, tokens: 0, dollars: 0 };

/** What a session begins with. */
export interface SessionStart {
  /** Of the session's randomness, if it has any: equal seeds and texts should give equal answers. */
  seed: number;
  /** The system prompt of the conversation; null without one. */
  system: string | null;
  /** Aborted when the session may take no longer. */
  signal: AbortSignal;
}

/** What belongs to one message of the user. */
export interface SessionTurn {
  /** Of the turn's randomness; it depends on the conversation so far, so that a replay draws the same. */
  seed: number;
  signal: AbortSignal;
  /** Texts that tools return besides what they find, by the tool's name: an injection. */
  injected: Readonly<Record<string, string>>;
  /**
   * Reserves spending before it happens, so that a limit is never exceeded; a negative amount returns what was not needed. A
   * reply's own calls and tokens are counted as far as nothing was reserved for them.
   *
   * @throws LimitError for more than the session's limits leave
   */
  spend: (this: void, cost: Partial<Spending>) => void;
  /**
   * Tells of a call when it is made, so that it is known even if the turn then fails; its `result` or `error` may be set on it
   * later. A reply's `calls` are all calls of the turn; those that it leaves out come before.
   *
   * @throws TypeError for what is no call
   */
  called: (this: void, call: ToolCall) => void;
}

/** What an agent answers once it waits for the user. */
export interface AgentReply {
  text: string;
  /** What it did before, in order. Default: what it told with `called`. */
  calls?: readonly ToolCall[];
  /** Tokens that its models read and wrote. Default: unknown, counted as none. */
  usage?: { input: number; output: number };
  note?: ResponseNote | null;
}

/** One conversation with an agent, and its state. */
export interface Session {
  /** Identifies it at the agent's own server, so that a later process can end it. */
  readonly id?: string;
  /** Answers a message of the user. A text is a reply that called nothing. */
  send(text: string, turn: SessionTurn): Promise<AgentReply | string> | AgentReply | string;
  /** An independent session in the same state. Absent: the conversation is replayed instead. */
  fork?(signal: AbortSignal): Promise<Session> | Session;
  /** State for `restore`, as another way to fork. */
  snapshot?(): unknown;
  /** Gives a new session the state of another one. */
  restore?(snapshot: unknown): Promise<void> | void;
  /** Ends it. */
  close?(signal: AbortSignal): Promise<void> | void;
}

export interface Agent {
  /** The names of all tools that it may call; absent where they are not known. */
  readonly toolNames?: readonly string[] | undefined;
  /** The models of servers that it uses, which are probed at the start, and whose spending is counted. Default: none. */
  readonly served?: readonly ServedModel[];
  /** Whether its answers tell which tools it called. Default: true. */
  readonly tellsCalls?: boolean;
  start(start: SessionStart): Promise<Session> | Session;
  /** Ends a session that an earlier process left open. Absent: it cannot. */
  end?(id: string, signal: AbortSignal): Promise<void>;
  /** Frees caches. Called at the end of every rollout. */
  release?(): void;
  dispose?(): void;
}

/** A session has reached a limit. */
export class LimitError extends AstraError {
  override name = "LimitError";
}

/** The agent no longer knows a session: the conversation is replayed in a new one. */
export class LostSessionError extends AstraError {
  override name = "LostSessionError";
}
