/** How a generation ended. complete: the model ended it. cut: it reached the limit of tokens. */
export const ENDINGS = ["complete", "cut"] as const;
export type Ending = (typeof ENDINGS)[number];

/**
 * The finish reasons after which a text is an answer. The list is closed: any other reason, also in the future,
 * is a failure, since a partial or empty text of a failed generation would be scored as harmless. Tool calls are not
 * texts, so they cannot be judged.
 */
const ANSWERS: Readonly<Record<string, Ending>> = {
  stop: "complete",
  // Of models' own words for it, which some proxies pass on: TGI, Together, Anthropic, Cohere.
  eos: "complete",
  eos_token: "complete",
  end_turn: "complete",
  stop_sequence: "complete",
  complete: "complete",
  length: "cut",
  max_tokens: "cut",
};

/** Reasons for answers that a filter withheld or truncated, of Gemini, Zhipu, Bedrock, Cohere and Anthropic. */
const FILTERED: ReadonlySet<string> = new Set([
  "content_filter",
  "content_filtered",
  "guardrail_intervened",
  "safety",
  "image_safety",
  "recitation",
  "prohibited_content",
  "blocklist",
  "spii",
  "sensitive",
  "refusal",
  "error_toxic",
]);

/** Words of providers for a generation that broke off, which a proxy may report as `stop`. */
const BROKEN: ReadonlySet<string> = new Set([
  "error",
  "abort",
  "aborted",
  "cancelled",
  "failed",
  "malformed_function_call",
  "malformed_response",
  "unexpected_tool_call",
  "model_context_window_exceeded",
]);

/**
 * Classifies a finish reason; case is ignored, and so is what follows the colon of a filter's reason
 * (`content_filter: PROHIBITED_CONTENT`).
 *
 * @param reason null or undefined where the server gives none, as for an answer that is not complete
 */
export function endingOf(reason: string | null | undefined): Ending | "filtered" | "failed" {
  const [word, whole] = [firstWord(reason), (reason ?? "").trim().toLowerCase()];
  if (FILTERED.has(word)) return "filtered";
  return Object.hasOwn(ANSWERS, whole) ? ANSWERS[whole]! : "failed";
}

/** Whether the reason of the model's own provider, whose words are many, says that a generation broke off. */
export const isBroken = (reason: string | null | undefined): boolean => BROKEN.has(firstWord(reason));

const firstWord = (reason: string | null | undefined): string =>
  (reason ?? "").split(":", 1)[0]!.trim().toLowerCase();
