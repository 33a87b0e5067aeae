/** How a generation ended. complete: the model ended it. cut: it reached the limit of tokens. */
export const ENDINGS = ["complete", "cut"] as const;
export type Ending = (typeof ENDINGS)[number];

/**
 * The finish reasons after which a text is an answer. The list is closed: whatever else a server writes, also in the future,
 * is a failure, since a partial or empty text of a generation that failed would be scored as harmless. Calls of tools are no
 * texts, so that nobody judges what they do.
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

/** Words for what a filter withheld or broke off, as Gemini, Zhipu, Bedrock, Cohere and Anthropic have them. */
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

/**
 * What a finish reason says of a text; upper and lower case are alike, and so is what follows a colon
 * (`content_filter: PROHIBITED_CONTENT`).
 *
 * @param reason null or undefined where the server gives none, as for an answer that is not complete
 */
export function endingOf(reason: string | null | undefined): Ending | "filtered" | "failed" {
  const word = (reason ?? "").split(":", 1)[0]!.trim().toLowerCase();
  if (FILTERED.has(word)) return "filtered";
  return Object.hasOwn(ANSWERS, word) ? ANSWERS[word]! : "failed";
}
