import { Command } from "@commander-js/extra-typings";
import { ChatTemplate, resolveCheckpoint, Tokenizer, type ChatMessage } from "@astra-rl/lm";
import { describeValue, UsageError } from "@astra-rl/torch";
import { modelSource } from "../assembly/index.js";
import { downloadNotes, noteHubModel } from "./configuration-options.js";
import { readJsonObjects } from "./json-lines.js";
import { createOutput, type Streams } from "./output.js";
import { Progress } from "./progress.js";

/**
 * `astra-rl encode`: one JSON line {ids} for each {text}, special tokens around it as in Python's `tokenizer(text)`, or
 * {messages}, as in Python's `apply_chat_template(messages, add_generation_prompt=True)`. No weights are read.
 */
export function encodeCommand(streams: Streams) {
  return new Command("encode")
    .description("Token ids of texts or conversations: one JSON line {ids} for each {text} or {messages}")
    .requiredOption("--model <model>", "folder or hub id")
    .requiredOption(
      "--input <file>",
      'JSON lines with a "text" or a list of "messages" {role, content} each; "-" is standard input',
    )
    .option("--quiet", "results and errors only", false)
    .action(async ({ model: name, input, quiet }) => {
      const output = createOutput(streams, { quiet });
      noteHubModel("--model", name, output);
      const rows = await readJsonObjects(input, '"text": … or "messages": …', parse);
      const directory = await resolveCheckpoint(modelSource(name), downloadNotes(output));
      const tokenizer = await Tokenizer.load(directory);
      const template = rows.some(({ messages }) => messages !== undefined) ? chatTemplate() : null;
      const progress = new Progress(output, { unit: "line", total: rows.length });
      rows.forEach(({ text, messages }, row) => {
        const ids =
          messages === undefined
            ? tokenizer.encode(text, { addSpecialTokens: true })
            : // The template has written them already.
              tokenizer.encode(template!.render(messages, { addGenerationPrompt: true }));
        output.json({ ids });
        progress.update(row + 1);
      });
      progress.end();

      function chatTemplate(): ChatTemplate {
        const found = ChatTemplate.of(tokenizer);
        if (found !== null) return found;
        throw new UsageError(
          `${directory}: "messages" need a chat template, but neither chat_template.jinja nor tokenizer_config.json has one`,
        );
      }
    });
}

type Row = { text: string; messages?: undefined } | { messages: ChatMessage[]; text?: undefined };

function parse(value: Readonly<Record<string, unknown>>, where: string): Row {
  const { text, messages } = value;
  if ((text === undefined) === (messages === undefined)) {
    throw new UsageError(`${where}: must have either "text" or "messages"`);
  }
  if (text !== undefined) {
    if (typeof text === "string") return { text };
    throw new UsageError(`${where}: "text" must be a text, got ${describeValue(text)}`);
  }
  if (!Array.isArray(messages) || messages.length === 0) {
    throw new UsageError(
      `${where}: "messages" must be a list of at least one, got ${describeValue(messages)}`,
    );
  }
  const isMessage = (message: unknown): message is ChatMessage =>
    typeof message === "object" &&
    message !== null &&
    "role" in message &&
    typeof message.role === "string" &&
    "content" in message &&
    typeof message.content === "string";
  const wrong = messages.findIndex((message) => !isMessage(message));
  if (wrong === -1) return { messages: messages as ChatMessage[] };
  throw new UsageError(
    `${where}: "messages" must each have "role" and "content", both texts; message ${wrong + 1} has not`,
  );
}
