import { join } from "node:path";
import { describeValue, UsageError } from "@astra-rl/base";
import { BoundedTemplate } from "./bounded-template.js";
import type { Tokenizer } from "./tokenizer.js";

export interface ChatMessage {
  /** "system", "user", "assistant", or any other role that the template supports. */
  role: string;
  content: string;
}

/** A message for a template; a content that is a list of parts is the form that those of multimodal models expect. */
export interface TemplateMessage {
  role: string;
  content: string | readonly { type: "text"; text: string }[];
}

/** A checkpoint's chat template: renders a conversation as one text. */
export class ChatTemplate {
  private constructor(
    private readonly template: BoundedTemplate,
    private readonly specials: Readonly<Record<string, string>>,
    /** File and key that it comes from; begins messages. */
    readonly where: string,
    /** Whether it writes the date. */
    readonly readsDate: boolean,
  ) {}

  /** Whether a tokenizer has a template, which may still be unusable. */
  static isIn({ directoryFiles, settings }: Tokenizer): boolean {
    return directoryFiles.has(FILE) || (settings["chat_template"] ?? null) !== null;
  }

  /**
   * The template of a tokenizer: chat_template.jinja, or "chat_template" in tokenizer_config.json (the one
   * called "default" if there are several); null if there is none.
   *
   * @param name selects one of several in tokenizer_config.json
   * @throws UsageError if there are several and none has that name
   */
  static of(tokenizer: Tokenizer, name?: string): ChatTemplate | null {
    const file = name === undefined ? tokenizer.directoryFiles.get(FILE) : undefined;
    const source =
      file === undefined
        ? listed(tokenizer.settings["chat_template"], tokenizer.where, name)
        : decoded(file, tokenizer.where);
    if (source === null) return null;
    const folder = tokenizer.where;
    const where = file === undefined ? `${join(folder, SETTINGS)}: "chat_template"` : join(folder, FILE);
    const readsDate = source.includes("strftime_now");
    return new ChatTemplate(new BoundedTemplate(source, where), tokenizer.specialTokens, where, readsDate);
  }

  /**
   * The conversation as text, including special tokens: encode it without adding any.
   *
   * @param options.addGenerationPrompt appends the start of the assistant's next message. Default false.
   * @param options.variables further variables of the template (tools, categories, …)
   * @param options.date the date that the template's `strftime_now` writes. Default: now
   * @throws UsageError if the template refuses the conversation (roles that do not alternate, …) or exceeds
   * the limits on time or memory
   */
  render(
    messages: readonly TemplateMessage[],
    options: {
      addGenerationPrompt?: boolean;
      variables?: Readonly<Record<string, unknown>>;
      date?: Date;
    } = {},
  ): string {
    const { addGenerationPrompt = false, variables = {}, date } = options;
    // transformers passes `tools` and `documents` always, as None where there are none.
    const given = {
      messages,
      tools: null,
      documents: null,
      add_generation_prompt: addGenerationPrompt,
      ...variables,
    };
    return this.template.render({ ...this.specials, ...given }, date);
  }
}

const FILE = "chat_template.jinja";
const SETTINGS = "tokenizer_config.json";

function decoded(bytes: Uint8Array, folder: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new UsageError("not-utf8", `${join(folder, FILE)}: must be UTF-8 text, got other bytes`, { cause });
  }
}

function listed(value: unknown, folder: string, name = "default"): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value === "string") return value;
  const named = Array.isArray(value) ? (value as ({ name?: unknown; template?: unknown } | null)[]) : [];
  const chosen = named.find((entry) => entry?.name === name)?.template;
  if (typeof chosen === "string") return chosen;
  throw new UsageError(
    "no-default-template",
    `${join(folder, SETTINGS)}: "chat_template" must be a template or a list with one called ${JSON.stringify(name)}, ` +
      `but it is ${describeValue(value)}`,
  );
}
