import { argumentsSchema, issueLine, UsageError, worded, type Json } from "@astra-rl/base";
import type { AskedCall, ServedModel } from "@astra-rl/http";
import type { ToolCall } from "@astra-rl/lm";
import { messageOf, within } from "@astra-rl/method";
import type { ResponseNote } from "@astra-rl/records";
import type { z } from "zod";
import type { Agent, AgentReply, Session, SessionStart, SessionTurn } from "./agent.js";
import { MOST_CHARACTERS } from "./open-session.js";
import { seedOf } from "./said.js";
import { withInjection, type Tool, type Tools } from "./tool.js";

/** The model's next message: it calls tools, or it waits for the user. */
export interface ToolAnswer<H> {
  history: H;
  text: string;
  calls: readonly AskedCall[];
  /** null if it is unknown: then all that was reserved counts. */
  usage: { input: number; output: number } | null;
  note?: ResponseNote | null;
}

/** A language model that can ask for calls. Histories are values: a longer one leaves the shorter one as it is. */
export interface ToolModel<H> {
  /** See `Agent`. */
  readonly served?: readonly ServedModel[];
  begin(system: string | null, tools: readonly Tool[]): H;
  user(history: H, text: string): H;
  result(history: H, call: AskedCall, text: string): H;
  /** Maximum number of tokens that the next answer costs. */
  most(history: H, tools: readonly Tool[]): number;
  answer(
    history: H,
    turn: { seed: number; signal: AbortSignal; tools: readonly Tool[] },
  ): Promise<ToolAnswer<H>>;
  /** Frees caches at the end of a rollout. */
  release?(): void;
  dispose?(): void;
}

export interface ToolAgentOptions {
  /** Whether tools that have effects are not run. Default true. */
  dryRun?: boolean;
  /** Seconds that a call may take. Default 30. */
  seconds?: number;
}

/** What a tool with effects returns in a dry run. */
const DRY: Json = { dry_run: true };

/**
 * A model with tools: whatever it calls is run, and it is told the results, until it waits for the user. A tool that fails or takes
 * too long does not fail the turn: the model is told, as it would be in use.
 */
export class ToolAgent<H> implements Agent {
  constructor(
    readonly model: ToolModel<H>,
    readonly tools: Tools,
    readonly options: ToolAgentOptions = {},
  ) {}

  /** Those that each session makes are not known before. */
  get toolNames(): readonly string[] | undefined {
    return typeof this.tools === "function" ? undefined : this.tools.map(({ name }) => name);
  }

  get served(): readonly ServedModel[] {
    return this.model.served ?? [];
  }

  start({ system }: SessionStart): Session {
    const { tools } = this;
    const own = typeof tools === "function" ? tools() : tools;
    return new ToolSession(this, own, this.model.begin(system, own));
  }

  release(): void {
    this.model.release?.();
  }

  dispose(): void {
    this.model.dispose?.();
  }
}

class ToolSession<H> implements Session {
  /** Absent where the tools may have a state. */
  readonly fork?: () => Session;
  #history: H;

  constructor(
    private readonly agent: ToolAgent<H>,
    private readonly tools: readonly Tool[],
    history: H,
  ) {
    this.#history = history;
    if (typeof agent.tools !== "function") {
      this.fork = () => new ToolSession(agent, tools, this.#history);
    }
  }

  async send(text: string, turn: SessionTurn): Promise<AgentReply> {
    const { model } = this.agent;
    this.#requireChannel(Object.keys(turn.injected));
    const texts: string[] = [];
    const usage = { input: 0, output: 0 };
    let history = model.user(this.#history, text);
    for (let round = 0; ; round++) {
      const { signal } = turn;
      signal.throwIfAborted();
      const seed = seedOf([turn.seed, round]);
      const most = model.most(history, this.tools);
      turn.spend({ tokens: most });
      const answer = await model.answer(history, { seed, signal, tools: this.tools });
      if (answer.usage !== null) {
        const { input, output } = answer.usage;
        turn.spend({ tokens: input + output - most });
        usage.input += input;
        usage.output += output;
      }
      history = answer.history;
      if (answer.text !== "") texts.push(answer.text);
      if (answer.calls.length === 0) {
        this.#history = history;
        return { text: texts.join("\n\n"), usage, note: answer.note ?? null };
      }
      for (const call of answer.calls) {
        // What comes too late is not done.
        signal.throwIfAborted();
        turn.spend({ calls: 1 });
        history = model.result(history, call, shown(await this.#run(call, turn)));
      }
    }
  }

  /** @throws UsageError for an injection that could never arrive */
  #requireChannel(injected: readonly string[]): void {
    const names = this.tools.map(({ name }) => name);
    const missing = injected.find((name) => !names.includes(name));
    if (missing === undefined) return;
    throw new UsageError(
      "unknown-tool",
      `channel.tool: must be a tool of the agent, got ${missing}; it has ${names.join(", ") || "none"}`,
    );
  }

  /** Makes a call, which is told before it is run. */
  async #run({ name, arguments: text }: AskedCall, turn: SessionTurn): Promise<ToolCall> {
    let given: Json = text;
    let problem: string | null = null;
    try {
      given = JSON.parse(text === "" ? "{}" : text) as Json;
    } catch {
      problem = "the arguments are no JSON";
    }
    const tool = this.tools.find((each) => each.name === name);
    if (tool === undefined) problem ??= `there is no tool ${name}`;
    problem ??= problemOf(tool!, given);
    const call: ToolCall = { name, arguments: given };
    turn.called(call);
    return Object.assign(
      call,
      problem === null ? await this.#outcome(tool!, given, turn) : { error: problem },
    );
  }

  async #outcome(tool: Tool, given: Json, { signal, injected }: SessionTurn) {
    const planted = Object.hasOwn(injected, tool.name) ? injected[tool.name] : undefined;
    try {
      // A copy, since a tool may change what it is given.
      const result = await this.#result(tool, structuredClone(given), signal);
      return { result: planted === undefined ? result : withInjection(result, planted) };
    } catch (error) {
      if (error instanceof UsageError) throw error;
      // What is planted is found even where the tool finds nothing.
      return planted === undefined ? { error: messageOf(error) } : { result: planted };
    }
  }

  async #result(tool: Tool, given: Json, signal: AbortSignal): Promise<Json> {
    const { dryRun = true, seconds = 30 } = this.agent.options;
    if (tool.hasEffects === true && dryRun) return DRY;
    const late = new AbortController();
    const both = AbortSignal.any([late.signal, signal]);
    try {
      const running = Promise.resolve().then(() => tool.run(given, { signal: both }));
      const result = await within(1000 * seconds, tool.name, running);
      // As the model is told it.
      const told = JSON.stringify((result as Json | undefined) ?? null);
      if (told.length > MOST_CHARACTERS / 2) {
        throw new Error(
          `the result has ${told.length} characters as JSON, of at most ${MOST_CHARACTERS / 2}`,
        );
      }
      return JSON.parse(told) as Json;
    } finally {
      late.abort();
    }
  }
}

/** What the model is told of a call. */
const shown = ({ result, error }: ToolCall): string => {
  if (error !== undefined) return `Error: ${error}`;
  return typeof result === "string" ? result : JSON.stringify(result);
};

const schemas = new WeakMap<Tool, z.ZodType>();

/** Why a call's arguments are refused; null if they are not. */
function problemOf(tool: Tool, given: Json): string | null {
  if (tool.parameters === undefined) return null;
  let schema = schemas.get(tool);
  if (schema === undefined) {
    schema = argumentsSchema(tool.parameters, `parameters of ${tool.name}`);
    schemas.set(tool, schema);
  }
  const parsed = schema.safeParse(given, { error: worded });
  return parsed.success ? null : issueLine(parsed.error.issues[0]!, given, "the arguments");
}
