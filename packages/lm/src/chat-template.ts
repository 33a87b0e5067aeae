import { Template } from "@huggingface/jinja";
import { describeValue, UsageError } from "@astra-rl/torch";
import { reason } from "./json-fields.js";
import type { Tokenizer } from "./tokenizer.js";

export interface ChatMessage {
  /** "system", "user", "assistant", or what else the template knows. */
  role: string;
  content: string;
}

/** How a checkpoint writes a conversation as one text. */
export class ChatTemplate {
  readonly #template: Template;
  readonly #specials: Readonly<Record<string, string>>;

  private constructor(source: string, specials: Readonly<Record<string, string>>) {
    try {
      this.#template = new Template(source);
    } catch (cause) {
      throw new UsageError(
        `chat template: must be a Jinja template, but it cannot be parsed: ${reason(cause)}`,
        {
          cause,
        },
      );
    }
    this.#specials = specials;
  }

  /**
   * The template of a tokenizer: chat_template.jinja, or "chat_template" in tokenizer_config.json (the one called
   * "default" where there are several); null where there is none.
   */
  static of(tokenizer: Tokenizer): ChatTemplate | null {
    const file = tokenizer.directoryFiles.get("chat_template.jinja");
    const source =
      file === undefined ? listed(tokenizer.settings["chat_template"]) : new TextDecoder().decode(file);
    if (source === null) return null;
    return new ChatTemplate(source, tokenizer.specialTokens);
  }

  /**
   * The conversation as text, special tokens spelled out: encode it without adding any.
   *
   * @param options.addGenerationPrompt ends with the beginning of the assistant's next message. Default false.
   * @param options.variables whatever else the template asks for (tools, categories, …)
   * @throws UsageError where the template refuses the conversation (roles that do not alternate, …)
   */
  render(
    messages: readonly ChatMessage[],
    options: { addGenerationPrompt?: boolean; variables?: Readonly<Record<string, unknown>> } = {},
  ): string {
    const { addGenerationPrompt = false, variables = {} } = options;
    try {
      return this.#template.render({
        ...this.#specials,
        messages,
        add_generation_prompt: addGenerationPrompt,
        ...variables,
      });
    } catch (cause) {
      throw new UsageError(`chat template: refuses this conversation: ${reason(cause)}`, { cause });
    }
  }
}

function listed(value: unknown): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value === "string") return value;
  const named = Array.isArray(value) ? (value as ({ name?: unknown; template?: unknown } | null)[]) : [];
  const chosen = named.find((entry) => entry?.name === "default")?.template;
  if (typeof chosen === "string") return chosen;
  throw new UsageError(
    `tokenizer_config.json: "chat_template" must be a template or a list with one called "default", ` +
      `but it is ${describeValue(value)}`,
  );
}
