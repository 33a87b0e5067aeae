import { UsageError } from "@astra-rl/base";
import { z } from "zod";
import { ChatTemplate } from "../chat-template.js";
import type { LoadedCausalLM } from "../checkpoint.js";
import { GOAL_PLACEHOLDER } from "../conversation/goal.js";
import type { Tokenizer } from "../tokenizer.js";
import { ChatFormat, HISTORIES } from "./chat.js";
import { Codec } from "./codec.js";
import { PlainFormat, type Format } from "./format.js";
import { refuseGoalOfTarget } from "./voices.js";

const label = z.string().optional();

/** The conversation format of a local model. */
export const modelFormatShape = {
  format: z
    .enum(["auto", "plain", "chat"])
    .default("auto")
    .describe(
      "chat: the checkpoint's chat template. plain: messages one after the other, as text. auto: chat if the " +
        "checkpoint has a template",
    ),
  template: z
    .string()
    .min(1)
    .optional()
    .describe(
      'Chat: name of the template in tokenizer_config.json, if there are several. Default: "default"',
    ),
  system: z
    .string()
    .min(1)
    .optional()
    .describe(
      "Chat: the system prompt; in a tester's, {goal} is replaced by its goal, which otherwise follows as a paragraph. " +
        "Default: none, so that the template's own is used, if it has one",
    ),
  thinking: z
    .boolean()
    .optional()
    .describe("Chat: whether the model reasons before it answers (enable_thinking). Default: false"),
  history: z
    .enum(HISTORIES)
    .optional()
    .describe(
      "Chat: how earlier messages are written. template: as the template writes them now, like a server does, which may " +
        "omit earlier reasoning; verbatim: as they were read and sampled. Default: template for targets, verbatim for testers",
    ),
  labels: z
    .strictObject({ system: label, prompt: label, tester: label, target: label })
    .optional()
    .describe('Plain: text before a message, by its origin, such as {tester: "User: ", target: "Bot: "}'),
  separator: z.string().optional().describe('Plain: text between two messages, such as "\\n"'),
  preamble: z
    .string()
    .refine((text) => text.includes(GOAL_PLACEHOLDER), `must contain ${GOAL_PLACEHOLDER}`)
    .optional()
    .describe(
      'Plain, testers only: text with {goal} that is read before a conversation with a goal. Default: "Goal: {goal}\\n"',
    ),
};

const CHAT_ONLY = ["template", "system", "thinking", "history"] as const;
const PLAIN_ONLY = ["labels", "separator", "preamble"] as const;

type FormatIssue = (rule: string, key: string, message: string) => void;

/** Refuses options of the format that was not chosen. */
export function checkModelFormat(given: z.output<typeof modelFormat>, issue: FormatIssue): void {
  const { format } = given;
  for (const key of format === "plain" ? CHAT_ONLY : PLAIN_ONLY) {
    if (given[key] === undefined) continue;
    const other = format === "plain" ? "chat" : "plain";
    issue(
      "inapplicable-option",
      key,
      `is an option of format: ${other}; leave it out, or set format to ${other}`,
    );
  }
}

export const modelFormat = z.strictObject(modelFormatShape);
export type ModelFormat = z.input<typeof modelFormat>;

/** A checkpoint (see `ModelSource`) with its conversation format. */
export interface FormattedModel extends ModelFormat {
  path: string | LoadedCausalLM;
}

/** The conversation format of a model without its path; empty for a plain model name. */
export function formatOf(given: unknown): ModelFormat {
  if (typeof given !== "object" || given === null || !("path" in given)) return {};
  const { path: _path, ...format } = given as FormattedModel;
  return format;
}

/**
 * The format of a model.
 *
 * @param where begins messages, such as "models.target"
 * @param date the date for templates that write it
 * @throws UsageError for a chat format without a template, and for a template that cannot be used
 */
export function makeFormat(
  where: string,
  tokenizer: Tokenizer,
  role: "tester" | "target",
  given: ModelFormat,
  date: Date,
): Format {
  const { format = "auto", template: name, system, thinking, history, labels, separator, preamble } = given;
  refuseGoalOfTarget(where, role, given);
  const codec = Codec.of(tokenizer);
  const template = format === "plain" ? null : ChatTemplate.of(tokenizer, name);
  if (template !== null) {
    return new ChatFormat(codec, template, { role, date, system, thinking, history });
  }
  const chatOnly = CHAT_ONLY.filter((key) => given[key] !== undefined);
  if (format === "chat" || (format === "auto" && chatOnly.length > 0)) {
    const needs = format === "chat" ? "format: chat" : chatOnly.join(", ");
    throw new UsageError(
      "missing-chat-template",
      `${where}: ${needs} needs a chat template, but the checkpoint has none (chat_template.jinja, or "chat_template" in ` +
        "tokenizer_config.json); add one, or leave it out",
    );
  }
  const labelled = Object.entries(labels ?? {}).filter(([, text]) => text !== undefined);
  return new PlainFormat(codec, { role, labels: Object.fromEntries(labelled), separator, preamble });
}
