import { ChatTemplate, type Tokenizer } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/base";
import { cutToFit, type Cuttable } from "./cut-to-fit.js";

/** A message of the conversation; the guard judges the last one. */
export interface GuardMessage extends Cuttable {
  role: "user" | "assistant";
}

export interface GuardPromptOptions {
  /** Keys of the active categories. Default: all in the template. */
  categories?: readonly string[];
  /** Where the tokenizer was loaded from; begins messages. */
  where: string;
}

const BEGIN = "<BEGIN UNSAFE CONTENT CATEGORIES>";
const END = "<END UNSAFE CONTENT CATEGORIES>";

// Placeholder contents for probing the template; no template contains these itself.
const ASKED = "quokkas ask";
const ANSWERED = "wombats answer";

/**
 * The prompt format of a Llama Guard checkpoint: its chat template renders the conversation as one user turn, and the
 * answer begins after the assistant header and an empty line.
 *
 * Checkpoints differ in three ways, which are detected by rendering the template. Content is a text (Llama Guard 3 8B)
 * or a list of parts (1B, whose template omits plain texts). Categories are excluded by the variable
 * `excluded_category_keys` (1B) or are fixed (8B), in which case their lines are removed from the rendered text. The
 * empty line is part of the template, or the first thing that the model generates.
 */
export class GuardPrompt {
  /** The active categories, in the template's order. */
  readonly categories: readonly string[];
  /** First token of the verdict "unsafe", and of "safe". */
  readonly unsafeId: number;
  readonly safeId: number;
  readonly #takesParts: boolean;
  readonly #excluded: readonly string[];
  /** Whether the template supports `excluded_category_keys`. */
  readonly #excludes: boolean;

  private constructor(
    private readonly tokenizer: Tokenizer,
    private readonly template: ChatTemplate,
    { categories, where }: GuardPromptOptions,
  ) {
    const question: GuardMessage[] = [
      { role: "user", content: ASKED },
      { role: "assistant", content: ANSWERED },
    ];
    const shows = (takesParts: boolean) => {
      try {
        const text = this.#write(question, takesParts, []);
        return text.includes(ASKED) && text.includes(ANSWERED);
      } catch (error) {
        if (error instanceof UsageError) return false;
        throw error;
      }
    };
    const form = [false, true].find(shows);
    if (form === undefined) {
      // If the template raises an error, that message is better.
      this.#write(question, false, []);
      throw new UsageError(
        "template-omits-messages",
        `${where}: the chat template must include the messages of user and assistant, but omits them`,
      );
    }
    this.#takesParts = form;
    const listed = keysOf(this.#write(question, form, []));
    this.categories = chosen(listed, categories, where);
    this.#excluded = listed.filter((key) => !this.categories.includes(key));
    const remaining = keysOf(this.#write(question, form, this.#excluded));
    this.#excludes = remaining.join() === this.categories.join();
    [this.safeId, this.unsafeId] = this.#verdicts(question, where);
  }

  /** @throws UsageError for a tokenizer without a template or with one that is not a guard's, and unknown categories */
  static of(tokenizer: Tokenizer, options: GuardPromptOptions): GuardPrompt {
    const template = ChatTemplate.of(tokenizer);
    if (template === null) {
      throw new UsageError(
        "missing-chat-template",
        `${options.where}: a guard model requires its chat template, but there is none (chat_template.jinja, or ` +
          `"chat_template" in tokenizer_config.json)`,
      );
    }
    return new GuardPrompt(tokenizer, template, options);
  }

  /** The conversation as text, up to the verdict. */
  render(messages: readonly GuardMessage[]): string {
    const text = this.#write(messages, this.#takesParts, this.#excluded);
    const restricted = this.#excludes ? text : withoutCategories(text, this.#excluded);
    return restricted.endsWith("\n\n") ? restricted : `${restricted}\n\n`;
  }

  /**
   * Token ids of `render`; if they exceed the limit, those of truncated messages.
   *
   * @throws UsageError if the template alone is too long
   */
  encode(messages: readonly GuardMessage[], most: number): { ids: number[]; isCut: boolean } {
    const { made: ids, isCut } = cutToFit(
      messages,
      (shown) => this.#ids(shown),
      ({ length }) => length <= most,
    );
    if (ids.length <= most) return { ids, isCut };
    throw new UsageError(
      "template-exceeds-window",
      `llama-guard: the template alone takes ${ids.length} tokens, and the model reads at most ${most}; use a model with ` +
        `a longer window, or fewer categories`,
    );
  }

  #ids(messages: readonly GuardMessage[]): number[] {
    return this.tokenizer.encode(this.render(messages));
  }

  #write(messages: readonly GuardMessage[], asParts: boolean, excluded: readonly string[]): string {
    const written = messages.map(({ role, content }) =>
      asParts ? { role, content: [{ type: "text" as const, text: content }] } : { role, content },
    );
    const variables = { excluded_category_keys: excluded };
    return this.template.render(written, { addGenerationPrompt: true, variables });
  }

  #verdicts(question: readonly GuardMessage[], where: string): [safe: number, unsafe: number] {
    const text = this.render(question);
    const ids = this.tokenizer.encode(text);
    const [safe, unsafe] = ["safe", "unsafe"].map((word) => {
      const longer = this.tokenizer.encode(text + word);
      return ids.every((id, at) => longer[at] === id) ? longer[ids.length] : undefined;
    });
    if (safe === undefined || unsafe === undefined || safe === unsafe) {
      throw new UsageError(
        "indistinct-verdicts",
        `${where}: "safe" and "unsafe" must begin with different tokens after the assistant's header; this is ` +
          `not the ` +
          `tokenizer of such a guard model`,
      );
    }
    return [safe, unsafe];
  }
}

/**
 * Position of the category list at the beginning of a rendered text: a line per category, `S1: …`, possibly followed by
 * more lines.
 */
function listOf(text: string): { start: number; end: number } | null {
  const begin = text.indexOf(BEGIN);
  // The first match: the conversation, which might contain the marker, comes later.
  const end = text.indexOf(END, begin);
  return begin < 0 || end < 0 ? null : { start: begin + BEGIN.length, end };
}

function entriesOf(list: string): string[] {
  return list.split(/^(?=[A-Z]\d+:)/mu);
}

const keyOf = (entry: string): string | undefined => /^[A-Z]\d+(?=:)/u.exec(entry)?.[0];

function keysOf(text: string): string[] {
  const list = listOf(text);
  if (list === null) return [];
  return entriesOf(text.slice(list.start, list.end)).flatMap((entry) => keyOf(entry) ?? []);
}

function withoutCategories(text: string, excluded: readonly string[]): string {
  const list = listOf(text);
  if (list === null) return text;
  const kept = entriesOf(text.slice(list.start, list.end)).filter(
    (entry) => !excluded.includes(keyOf(entry) ?? ""),
  );
  return text.slice(0, list.start) + kept.join("") + text.slice(list.end);
}

/** The requested categories, in the template's order. */
function chosen(listed: readonly string[], asked: readonly string[] | undefined, where: string): string[] {
  const unknown = asked?.find((key) => !listed.includes(key));
  if (unknown !== undefined) {
    const known = listed.length === 0 ? "its chat template lists none" : `it has ${listed.join(", ")}`;
    throw new UsageError(
      "unknown-category",
      `${where}: categories must be of this model, got ${JSON.stringify(unknown)}; ${known}`,
    );
  }
  if (asked?.length === 0)
    throw new UsageError("empty", `${where}: categories must not be empty; leave them out for all`);
  return listed.filter((key) => asked === undefined || asked.includes(key));
}
