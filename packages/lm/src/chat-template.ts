import { join } from "node:path";
import { describeValue, UsageError } from "@astra-rl/torch";
import { BoundedTemplate } from "./bounded-template.js";
import type { Tokenizer } from "./tokenizer.js";

export interface ChatMessage {
  /** "system", "user", "assistant", or what else the template knows. */
  role: string;
  content: string;
}

/** A message whose content is a list of parts, as templates of models that see pictures want it. */
export interface ChatMessageOfParts {
  role: string;
  content: readonly { type: "text"; text: string }[];
}

/** How a checkpoint writes a conversation as one text. */
export class ChatTemplate {
  private constructor(
    private readonly template: BoundedTemplate,
    private readonly specials: Readonly<Record<string, string>>,
  ) {}

  /**
   * The template of a tokenizer: chat_template.jinja, or "chat_template" in tokenizer_config.json (the one called
   * "default" where there are several); null where there is none.
   */
  static of(tokenizer: Tokenizer): ChatTemplate | null {
    const file = tokenizer.directoryFiles.get(FILE);
    const source =
      file === undefined
        ? listed(tokenizer.settings["chat_template"], tokenizer.where)
        : decoded(file, tokenizer.where);
    if (source === null) return null;
    const folder = tokenizer.where;
    const where = file === undefined ? `${join(folder, SETTINGS)}: "chat_template"` : join(folder, FILE);
    return new ChatTemplate(new BoundedTemplate(source, where), tokenizer.specialTokens);
  }

  /**
   * The conversation as text, special tokens spelled out: encode it without adding any.
   *
   * @param options.addGenerationPrompt ends with the beginning of the assistant's next message. Default false.
   * @param options.variables whatever else the template asks for (tools, categories, …)
   * @throws UsageError where the template refuses the conversation (roles that do not alternate, …), or would take more
   * time or room than any honest template
   */
  render(
    messages: readonly (ChatMessage | ChatMessageOfParts)[],
    options: { addGenerationPrompt?: boolean; variables?: Readonly<Record<string, unknown>> } = {},
  ): string {
    const { addGenerationPrompt = false, variables = {} } = options;
    return this.template.render({
      ...this.specials,
      messages,
      add_generation_prompt: addGenerationPrompt,
      ...variables,
    });
  }
}

const FILE = "chat_template.jinja";
const SETTINGS = "tokenizer_config.json";

function decoded(bytes: Uint8Array, folder: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new UsageError(`${join(folder, FILE)}: must be UTF-8 text, got other bytes`, { cause });
  }
}

function listed(value: unknown, folder: string): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value === "string") return value;
  const named = Array.isArray(value) ? (value as ({ name?: unknown; template?: unknown } | null)[]) : [];
  const chosen = named.find((entry) => entry?.name === "default")?.template;
  if (typeof chosen === "string") return chosen;
  throw new UsageError(
    `${join(folder, SETTINGS)}: "chat_template" must be a template or a list with one called "default", ` +
      `but it is ${describeValue(value)}`,
  );
}
