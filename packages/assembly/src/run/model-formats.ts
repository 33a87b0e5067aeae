import { ChatFormat, ChatTemplate, PlainFormat, Conversation } from "@astra-rl/lm";
import type { Configuration } from "../configuration/index.js";
import type { Prompt } from "../datasets/index.js";
import { localModels, untoldModel, type AssembledSystem } from "../assemble/index.js";

/** How the local models of a system read conversations. */
export interface ModelFormats {
  /** By the model's name, such as "target-2". */
  formats: Record<string, "chat" | "plain">;
  /** Notes to print before anything is generated. */
  notes: string[];
  warnings: string[];
  /** Whether a chat template writes the date. */
  readsDate: boolean;
}

/**
 * How each model reads conversations, with a warning if it was probably trained differently: a checkpoint with a chat
 * template that is read as plain text, or a template that ends messages with a token that does not end the model's texts;
 * and a warning if prompts are conversations and a model gets no speakers.
 */
export function modelFormats(assembled: AssembledSystem, prompts: readonly Prompt[] = []): ModelFormats {
  const made: ModelFormats = { formats: {}, notes: [], warnings: [], readsDate: false };
  for (const model of localModels(assembled.system)) {
    if (model.format === undefined || model.tokenizer === undefined) continue;
    const { format, tokenizer } = model;
    const name = model.name!;
    if (format instanceof ChatFormat) {
      made.formats[name] = "chat";
      made.readsDate ||= format.template.readsDate;
      const [end] = format.endIds;
      if (end === undefined || model.model!.config.eosIds.includes(end)) continue;
      const token = tokenizer.decode([end], { skipSpecialTokens: false });
      made.warnings.push(
        `the ${name}'s chat template ends a message with ${token}, which does not end this checkpoint's texts (eos_token_id): ` +
          "it may be a base model that was not trained on chats; if so, set format: plain",
      );
    } else if (format instanceof PlainFormat) {
      made.formats[name] = "plain";
      if (!ChatTemplate.isIn(tokenizer)) continue;
      made.warnings.push(
        `the ${name} has a chat template but is configured for plain text: its responses may differ from ` +
          `those in a chat, and ` +
          "finding no harm this way is not evidence of safety",
      );
    }
  }
  const isConversation = (prompt: Prompt) => prompt instanceof Conversation && prompt.depth > 1;
  const untold = prompts.some(isConversation) ? untoldModel(assembled) : null;
  if (untold !== null) {
    made.warnings.push(
      `prompts with several messages are read as one text, a line for each, because ${untold} uses plain text ` +
        `that does ` +
        "not mark the speakers; set its format: chat, or labels and a separator",
    );
  }
  const chats = Object.keys(made.formats).filter((name) => made.formats[name] === "chat");
  if (chats.length > 0) made.notes.push(`Chat template of the checkpoint: ${chats.join(", ")}`);
  return made;
}

/** The configuration with today's date for chat templates, unless it has one. */
export function withToday(configuration: Configuration, now = new Date()): Configuration {
  const { models } = configuration;
  if (models.date !== undefined) return configuration;
  const two = (part: number) => String(part).padStart(2, "0");
  const date = `${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}`;
  return { ...configuration, models: { ...models, date } };
}
