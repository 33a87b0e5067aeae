import { AnswerError } from "@astra-rl/http";

/** What begins a call where models write them: Hermes and Qwen, Mistral, Llama, DeepSeek, Kimi, Granite, Functionary, Phi, Gemma. */
const MARKS = [
  "<tool_call>",
  "<|tool_call|>",
  "<|tool_call>",
  "<tool_calls>",
  "<|tool_calls",
  "<｜tool▁call",
  "[TOOL_CALLS]",
  "<|python_tag|>",
  "<function=",
  "<function_call>",
  "<|recipient|>",
  "<invoke",
  "<start_function_call>",
  "```tool_c",
];

/** An object of JSON that may be a call, of which at least the beginning of its first key is there. */
const CALL_IN_JSON =
  /[{[]\s*\{?\s*"(?:name|type|id|function|tool|tool_name|action|parameters|arguments)"\s*:/u;
/** What may still become one: `[`, `{` or `[{"na` at the end. */
const OPEN_OBJECT = /(?:\{\s*(?:"[^"]*"?\s*:?)?|^\s*\[[^\]]*)$/u;

/**
 * Whether the rest of a text that reached its maximum length may be a call, so that what the model was about to do is unknown.
 * Complete calls are not in the text any more.
 *
 * @param names of the tools, which some models call as functions of Python
 */
export function endsWithinCall(text: string, names: readonly string[] = []): boolean {
  return (
    MARKS.some((mark) => text.includes(mark) || endsInBeginningOf(text, mark)) ||
    CALL_IN_JSON.test(text) ||
    OPEN_OBJECT.test(text) ||
    names.some((name) => text.includes(`${name}(`))
  );
}

/** A single character may be a mark of anything. */
const endsInBeginningOf = (text: string, mark: string): boolean =>
  Array.from({ length: mark.length - 2 }, (_, at) => mark.slice(0, at + 2)).some((part) =>
    text.endsWith(part),
  );

/** What it was about to do is unknown, so it did not do nothing. */
export const cutWithinCall = (usage: { input: number; output: number } | null): AnswerError =>
  new AnswerError("the answer ended at its maximum length within a call; raise maxNewTokens", "answer", {
    isFinal: true,
    usage,
  });
