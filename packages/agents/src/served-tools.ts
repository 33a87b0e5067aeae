import { AnswerError, type ChatMessage, type ToolChat } from "@astra-rl/http";
import type { AskedCall } from "@astra-rl/http";
import type { Tool } from "./tool.js";
import type { ToolAnswer, ToolModel } from "./tool-agent.js";
import { cutWithinCall, endsWithinCall } from "./unfinished-call.js";

type History = readonly ChatMessage[];

/** A chat model with tools behind a server. */
export class ServedTools implements ToolModel<History> {
  readonly served: readonly ToolChat[];

  constructor(
    readonly chat: ToolChat,
    readonly system: string | null = null,
  ) {
    this.served = [chat];
  }

  begin(system: string | null): History {
    const content = system ?? this.system;
    return content === null ? [] : [{ role: "system", content }];
  }

  user(history: History, content: string): History {
    return [...history, { role: "user", content }];
  }

  result(history: History, { id }: AskedCall, content: string): History {
    return [...history, { role: "tool", tool_call_id: id, content }];
  }

  most(history: History, tools: readonly Tool[]): number {
    return this.chat.most(history, tools.map(described));
  }

  /** @throws AnswerError for what is no answer after the server's retries */
  async answer(
    history: History,
    { seed, tools }: { seed: number; tools: readonly Tool[] },
  ): Promise<ToolAnswer<History>> {
    const reply = await this.chat.ask(history, tools.map(described), seed);
    if (reply.answer === undefined) {
      const { message, cause = "answer" } = reply.failure;
      // It was retried already.
      throw new AnswerError(message, cause, { isFinal: true });
    }
    const { text, note, ending, asked: calls = [], usage } = reply.answer;
    // Servers return the beginning of a call as text.
    if (ending === "cut" && tools.length > 0) {
      const names = tools.map(({ name }) => name);
      if (endsWithinCall(text, names)) throw cutWithinCall(usage);
    }
    const own: ChatMessage = {
      role: "assistant",
      content: text,
      ...(calls.length === 0
        ? {}
        : {
            tool_calls: calls.map(({ id, name, arguments: given }) => ({
              id,
              type: "function" as const,
              function: { name, arguments: given },
            })),
          }),
    };
    return {
      history: [...history, own],
      text,
      calls,
      usage,
      note: note ?? (ending === "cut" ? "unfinished" : null),
    };
  }

  dispose(): void {
    this.chat.dispose();
  }
}

/** A tool as requests describe it. */
const described = ({ name, description, parameters }: Tool) => ({
  type: "function",
  function: {
    name,
    ...(description === undefined ? {} : { description }),
    parameters: parameters ?? { type: "object" },
  },
});
