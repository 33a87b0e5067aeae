import type { AskedCall } from "@astra-rl/http";
import { Conversation, Message, type LocalModel } from "@astra-rl/lm";
import type { Tool } from "./tool.js";
import type { ToolAnswer, ToolModel } from "./tool-agent.js";
import { cutWithinCall, endsWithinCall } from "./unfinished-call.js";

/**
 * How chat models of the Hermes and Qwen families write calls and read results
 * (https://github.com/NousResearch/Hermes-Function-Calling): JSON between tags, and results as a message of the user.
 */
const CALL = /<tool_call>\s*(\{[\s\S]*?\})\s*<\/tool_call>/gu;
const responseOf = (text: string) => `<tool_response>\n${text}\n</tool_response>`;

interface Waiting {
  history: Conversation;
  seed: number;
  resolve: (message: Message) => void;
  reject: (error: unknown) => void;
}

/** A chat model in this process that writes calls in its messages. Answers that are asked for at a time are generated together. */
export class LocalTools implements ToolModel<Conversation> {
  #waiting: Waiting[] = [];

  /**
   * @param free frees the model's weights
   */
  constructor(
    readonly model: LocalModel,
    readonly system: string | null = null,
    private readonly free: () => void = () => {},
  ) {}

  begin(system: string | null, tools: readonly Tool[]): Conversation {
    const text = [system ?? this.system ?? [], listOf(tools)].flat().join("\n\n");
    return Conversation.of(text === "" ? "" : new Message("system", text));
  }

  user(history: Conversation, text: string): Conversation {
    return history.append(new Message("tester", text));
  }

  result(history: Conversation, _: AskedCall, text: string): Conversation {
    return history.append(new Message("tester", responseOf(text)));
  }

  /** At most one token for each byte, as in byte-level vocabularies. */
  most(history: Conversation): number {
    return (
      Buffer.byteLength(history.toString()) + 32 * history.depth + (this.model.sampling.maxNewTokens ?? 0)
    );
  }

  async answer(history: Conversation, { seed }: { seed: number }): Promise<ToolAnswer<Conversation>> {
    const read = this.model.prompt(history).length;
    const message = await new Promise<Message>((resolve, reject) => {
      this.#waiting.push({ history, seed, resolve, reject });
      if (this.#waiting.length === 1) setImmediate(() => void this.#generate());
    });
    const calls: AskedCall[] = [];
    const text = message.text.replaceAll(CALL, (whole, json: string) => {
      const call = callIn(json, calls.length);
      if (call === null) return whole;
      calls.push(call);
      return "";
    });
    const { ids, finished } = message.sampled!;
    const usage = { input: read, output: ids.length };
    if (finished === "length" && endsWithinCall(text)) throw cutWithinCall(usage);
    return {
      history: history.append(message),
      text: text.trim(),
      calls,
      usage,
      note: finished === "length" ? "unfinished" : null,
    };
  }

  release(): void {
    this.model.release();
  }

  dispose(): void {
    this.model.dispose();
    this.free();
  }

  async #generate(): Promise<void> {
    const rows = this.#waiting;
    this.#waiting = [];
    try {
      const messages = await this.model.generate(
        rows.map(({ history }) => history),
        // The seed depends on the whole conversation, so that no two rows share their draws.
        { keys: rows.map(({ seed }) => ({ seed, episode: 0, node: 0 })) },
      );
      for (const [row, { resolve }] of rows.entries()) resolve(messages[row]!);
    } catch (error) {
      for (const { reject } of rows) reject(error);
    }
  }
}

/** null for what is no call, which stays text. */
function callIn(json: string, index: number): AskedCall | null {
  try {
    const { name, arguments: given = {} } = JSON.parse(json) as { name?: unknown; arguments?: unknown };
    return typeof name === "string" ? { id: `call_${index}`, name, arguments: JSON.stringify(given) } : null;
  } catch {
    return null;
  }
}

/** The tools for a system prompt; nothing without tools. */
function listOf(tools: readonly Tool[]): string[] {
  if (tools.length === 0) return [];
  const lines = tools.map(({ name, description, parameters = { type: "object" } }) =>
    JSON.stringify({ type: "function", function: { name, description, parameters } }),
  );
  return [["<tools>", ...lines, "</tools>"].join("\n")];
}
