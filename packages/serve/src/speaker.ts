import { createHash } from "node:crypto";
import {
  Conversation,
  goalOf,
  Message,
  makeFormat,
  writtenIds,
  type Format,
  type From,
  type Tokenizer,
  type ModelFormat,
} from "@astra-rl/lm";
import { ApiError } from "./api-error.js";
import type { ChatMessageIn } from "./requests.js";

export interface SpeakerOptions {
  role: "tester" | "target";
  /** The model's conversation format; its system prompt may be replaced by the request's. */
  format?: ModelFormat;
  /** The date for templates that write it. */
  date: Date;
  /** Whose system prompt a tester reads: its own, or the request's. Default "ours". */
  system?: "ours" | "theirs";
  /** A tester's goal where the request has none: "first-message" takes the first user message. Default: no goal. */
  goal?: "first-message";
  /**
   * Prompts that replace the first user message, drawn by its text: a tester was trained on conversations, not on
   * instructions.
   */
  prompts?: readonly string[];
}

/**
 * Renders the messages of a request as the model was trained to read them: for a tester, the requesting tool is the
 * target, and the first user message the prompt, or the goal. Its format tells a tester the goal, as in training.
 */
export class Speaker {
  readonly #formats = new Map<string, Format>();

  /** @param name begins messages */
  constructor(
    readonly name: string,
    readonly tokenizer: Tokenizer,
    readonly options: SpeakerOptions,
  ) {}

  /**
   * Ids up to the start of the model's message.
   *
   * @param goal text of the request; null for none
   * @throws ApiError for an order of messages that cannot be answered
   */
  write(messages: readonly ChatMessageIn[], goal: string | null): { ids: number[]; format: Format } {
    const { role, system: whose = "ours", prompts = [] } = this.options;
    if (goal !== null && role === "target") {
      throw new ApiError(
        400,
        "goal: is for testers; a target never reads the goal, so leave it out",
        "unsupported_parameter",
        "goal",
      );
    }
    if (messages.at(-1)!.role !== "user") {
      throw new ApiError(400, "messages: the last one must be the user's", "invalid_value", "messages");
    }
    const said: Message[] = [];
    let objective = goal;
    let system: string | undefined;
    for (const { role: voice, content } of messages) {
      if (voice === "system" || voice === "developer") {
        system = system === undefined ? content : `${system}\n\n${content}`;
        continue;
      }
      const isFirst = said.length === 0;
      said.push(new Message(this.#origin(voice, isFirst), content));
      if (!isFirst || voice === "assistant") continue;
      const isGoal = goal === null && this.options.goal === "first-message" && content.trim() !== "";
      if (isGoal) objective = content;
      // What is read as the goal is not read again as the prompt.
      const text = prompts.length > 0 ? drawn(prompts, content) : isGoal ? "" : content;
      said[0] = new Message(said[0]!.from, text);
    }
    if (system !== undefined && role === "target") said.unshift(new Message("system", system));
    const format = this.#format(role === "tester" && whose === "theirs" ? system : undefined);
    const [first, ...others] = said as [Message, ...Message[]];
    const conversation = Conversation.of(first, ...others);
    const told =
      objective === null ? conversation : conversation.withGoal(goalOf({ id: "request", text: objective }));
    return { ids: writtenIds(format, role, told), format };
  }

  #origin(voice: "user" | "assistant", isFirst: boolean): From {
    const { role } = this.options;
    if (role === "target") return voice === "user" ? "tester" : "target";
    if (voice === "assistant") return "tester";
    return isFirst ? "prompt" : "target";
  }

  #format(system: string | undefined): Format {
    const name = system ?? "";
    const known = this.#formats.get(name) ?? this.#make(system);
    // System prompts are few; a client that sends a new one each time must not fill the memory.
    if (this.#formats.size >= 64) this.#formats.clear();
    this.#formats.set(name, known);
    return known;
  }

  #make(system: string | undefined): Format {
    const { role, format, date } = this.options;
    const given = { ...format, ...(system === undefined ? {} : { system }) };
    return makeFormat(this.name, this.tokenizer, role, given, date);
  }
}

/** The same prompt for the same text, so that a conversation keeps its beginning from turn to turn. */
function drawn(prompts: readonly string[], text: string): string {
  const hash = createHash("sha256").update(text).digest();
  return prompts[hash.readUInt32BE(0) % prompts.length]!;
}
