import { createHash } from "node:crypto";
import { expect, it } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import { rounds } from "../../../scripts/rounds.js";
import { HTTPModel } from "../src/index.js";
import { probed } from "./asking.js";
import { anthropicMessage, json, lastText, loopback } from "./loopback.js";

const ROWS = rounds(1000, 10_000);

/** Draws for a row: the same for the same row. */
const drawsOf = (row: number) => {
  const digest = createHash("sha256").update(`${row}`).digest();
  let at = 0;
  const next = () => digest.readUInt32BE(4 * at++) / 2 ** 32;
  const pick = <T>(from: readonly T[]): T => from[Math.floor(next() * from.length)]!;
  return { pick, isDrawn: (share: number) => next() < share };
};

// Words that stand where an answer's finish reason does, of OpenAI, Azure, Gemini, Vertex, Bedrock, Cohere, Mistral, DeepSeek, Zhipu,
// vLLM, SGLang, OpenRouter and Ollama, and some that nobody writes yet.
const FILTERED = [
  "content_filter",
  "CONTENT_FILTER",
  "content_filter: PROHIBITED_CONTENT",
  "content_filtered",
  "guardrail_intervened",
  "SAFETY",
  "safety",
  "IMAGE_SAFETY",
  "RECITATION",
  "PROHIBITED_CONTENT",
  "BLOCKLIST",
  "SPII",
  "sensitive",
  "refusal",
  "ERROR_TOXIC",
] as const;
const FAILED = [
  "error",
  "ERROR",
  "abort",
  "cancelled",
  "insufficient_system_resource",
  "network_error",
  "model_context_window_exceeded",
  "model_length",
  "load",
  "tool_calls",
  "function_call",
  "tool_use",
  "MALFORMED_FUNCTION_CALL",
  "FINISH_REASON_UNSPECIFIED",
  "OTHER",
  "LANGUAGE",
  "stopped",
  "stop: content_filter",
  "length:abort",
  "Length exceeded",
  "",
  " ",
  "toString",
  "__proto__",
  null,
  undefined,
  7,
  {},
] as const;
const ANSWERED = ["stop", "length", "eos_token", "STOP", "end_turn"] as const;
const TEXTS = ["", " ", "Sorry, I", "That is a fine idea.", "\n\n"] as const;

type Choice = Record<string, unknown>;

/** Ways in which a choice with a valid finish reason is not an answer. */
const BROKEN: readonly ((text: string) => Choice)[] = [
  (content) => ({ message: { content }, error: { code: 502, message: "upstream" } }),
  (content) => ({ message: { content }, error: "upstream" }),
  (content) => ({ message: { content }, error: 502 }),
  () => ({ message: { content: null } }),
  () => ({ message: {} }),
  () => ({ message: null }),
  () => ({}),
  () => ({ message: { content: [] } }),
  (content) => ({ message: { content: { text: content } } }),
  (content) => ({ message: { content: [content] } }),
  () => ({ message: { content: [{ type: "image_url", image_url: {} }] } }),
  () => ({ message: { content: null, tool_calls: [{ type: "function", function: { name: "send" } }] } }),
  (content) => ({ message: { content, tool_calls: [{ type: "function", function: { name: "send" } }] } }),
  (content) => ({ message: { content, function_call: { name: "send", arguments: "{}" } } }),
  () => ({ message: { content: "", reasoning: "It is" } }),
  () => ({ message: { content: null, reasoning_content: "It is" } }),
  () => ({ message: { content: [{ type: "thinking", thinking: "It is" }] } }),
  () => ({ message: { content: "" }, finish_reason: "length" }),
  () => ({ text: "", finish_reason: "length" }),
  (content) => ({ message: { content }, content_filter_results: { violence: { filtered: true } } }),
  (content) => ({
    message: { content },
    content_filter_results: { custom_blocklists: [{ filtered: true, id: "1" }] },
  }),
  (content) => ({ message: { content, content_filter_results: { hate: { filtered: true } } } }),
  (content) => ({ message: { content }, native_finish_reason: "RECITATION" }),
  (content) => ({ message: { content }, native_finish_reason: "error" }),
  (content) => ({ message: { content }, native_finish_reason: "MALFORMED_FUNCTION_CALL" }),
  (content) => ({ message: { content, error: "upstream" } }),
  () => ({ message: { content: "\n\n", reasoning_content: "It is" } }),
  () => ({ delta: { content: "A part of a stream" } }),
];

/** Ways in which a body is not a completion. */
const BODIES: readonly ((choice: Choice) => unknown)[] = [
  (choice) => ({ choices: [choice], error: { message: "upstream" } }),
  (choice) => ({ choices: [choice], error: "upstream" }),
  (choice) => ({ choices: [choice], error: 502 }),
  (choice) => ({ choices: [choice], error: true }),
  (choice) => ({ choices: [choice], error: ["upstream"] }),
  (choice) => ({ choices: [choice], error: { message: 502 } }),
  (choice) => ({ choices: [choice], detail: "upstream" }),
  (choice) => ({ choices: choice }),
  () => ({ choices: [] }),
  () => ({ choices: null }),
  () => ({ choices: [null] }),
  () => ({}),
  () => null,
  () => [],
  () => "That is a fine idea.",
  () => ({ output_text: "That is a fine idea." }),
  (choice) => [choice],
];

function faultyCompletion(row: number): unknown {
  const { pick, isDrawn } = drawsOf(row);
  const content = pick(TEXTS);
  const said = isDrawn(0.8) ? { message: { role: "assistant", content } } : { text: content };
  switch (row % 4) {
    case 0:
      return { choices: [{ ...said, finish_reason: pick(FILTERED) }] };
    case 1:
      return { choices: [{ ...said, finish_reason: pick(FAILED) }] };
    case 2:
      return { choices: [{ finish_reason: pick(ANSWERED), ...pick(BROKEN)(content) }] };
    default:
      return pick(BODIES)({ ...said, finish_reason: pick(ANSWERED) });
  }
}

/** Ways in which a message of Anthropic's API with a valid stop reason is not an answer. */
const BROKEN_MESSAGES: readonly ((text: string) => Record<string, unknown>)[] = [
  () => ({ content: null }),
  () => ({ content: undefined }),
  (content) => ({ content: { type: "text", text: content } }),
  (content) => ({ content: [content] }),
  () => ({ content: [{ type: "text" }] }),
  () => ({ content: [{ type: "text", text: null }] }),
  (text) => ({
    content: [
      { type: "text", text },
      { type: "tool_use", id: "1", name: "send", input: {} },
    ],
  }),
  () => ({ content: [{ type: "server_tool_use", id: "1", name: "web_search", input: {} }] }),
  () => ({ content: [{ type: "thinking", thinking: "It is" }] }),
  () => ({ content: [{ type: "redacted_thinking", data: "x" }] }),
  () => ({
    content: [
      { type: "thinking", thinking: "It is" },
      { type: "text", text: "\n\n" },
    ],
  }),
  () => ({ content: [], stop_reason: "max_tokens" }),
  (text) => ({ content: [{ type: "text", text }], role: "user" }),
  (text) => ({ content: [{ type: "text", text }], type: "message_start" }),
  (text) => ({ content: [{ type: "text", text }], error: { type: "api_error", message: "internal" } }),
  (text) => ({ content: [{ type: "text", text }], model: null }),
  (text) => ({ content: [{ type: "text", text }], usage: { input_tokens: -1, output_tokens: 1 } }),
];

function faultyMessage(row: number): unknown {
  const { pick } = drawsOf(row);
  const text = pick(TEXTS);
  const message = anthropicMessage({ body: { model: "m" } }, text);
  switch (row % 4) {
    case 0:
      return { ...message, stop_reason: pick(FILTERED) };
    case 1:
      return { ...message, stop_reason: pick(FAILED) };
    case 2:
      return { ...message, stop_reason: pick(ANSWERED), ...pick(BROKEN_MESSAGES)(text) };
    default:
      return pick(BODIES)({ message: { content: text }, text, finish_reason: "stop" });
  }
}

it.each([
  ["chat", faultyCompletion],
  ["messages", faultyMessage],
] as const)(
  "of a thousand faulty answers of every kind, ten thousand in the night, none becomes a message (api: %s)",
  async (api, faultyBody) => {
    const { baseURL } = await loopback((asked, response) =>
      json(response, 200, faultyBody(Number(lastText(asked)))),
    );
    const server = { baseURL, api, model: "m", retry: { attempts: 1 } };
    const model = await probed(
      new HTTPModel(
        "target",
        "target",
        { server, sampling: { maxNewTokens: 5, temperature: 1, topK: 0, topP: 1 } },
        { environment: {} },
      ),
    );
    const causes = new Map<string, number>();
    const said: string[] = [];
    for (let start = 0; start < ROWS; start += 500) {
      const rows = Array.from({ length: Math.min(500, ROWS - start) }, (_, at) => start + at);
      const given = await model.generate(
        rows.map((row) => Conversation.of(new Message("tester", `${row}`))),
        { keys: rows.map((node) => ({ seed: 1, episode: 0, node })) },
      );
      for (const [at, each] of given.entries()) {
        const row = rows[at]!;
        if (each instanceof Message) said.push(`${row}: ${JSON.stringify(faultyBody(row))}`);
        else {
          const cause = each.cause ?? "none";
          causes.set(cause, (causes.get(cause) ?? 0) + 1);
          if (row % 4 === 0) expect([cause, row]).toEqual(["filtered", row]);
          if (row % 4 === 1) expect([cause, row]).toEqual(["answer", row]);
        }
      }
    }
    expect(said).toEqual([]);
    expect([...causes.values()].reduce((sum, count) => sum + count)).toBe(ROWS);
    expect(new Set(causes.keys())).toEqual(new Set(["answer", "filtered", "reasoning"]));
    model.dispose();
  },
  120_000,
);
