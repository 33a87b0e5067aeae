import type { ScoredTokens } from "./answer.js";

/**
 * The log-probabilities of the tokens in the last part of a prompt, from a server that echoes the prompt. A token that begins
 * before this part and ends in it counts, since the part is not said without it.
 *
 * @param text what the server returned: the prompt, and what it generated after it
 * @param start where the part begins in the prompt, in UTF-16 units
 * @returns null where the tokens do not cover the prompt, or one of the part has no log-probability
 */
export function promptLogprobs(
  text: string,
  { tokens, logprobs, offsets: given }: ScoredTokens,
  prompt: string,
  start: number,
): number[] | null {
  if (!text.startsWith(prompt)) return null;
  const isWhole = tokens.join("") === text;
  // A token that is a part of a character has no text of its own, so that only the server knows where it begins.
  const offsets = isWhole ? offsetsOf(tokens) : (given ?? []);
  const measure = isWhole ? (part: string) => part.length : codePoints;
  const isOrdered = offsets.every((offset, at) => offset >= (offsets[at - 1] ?? 0));
  if (offsets[0] !== 0 || !isOrdered || offsets.length !== tokens.length) return null;
  const [first, end] = [measure(prompt.slice(0, start)), measure(prompt)];
  const found: number[] = [];
  for (const [at, offset] of offsets.entries()) {
    const next = offsets[at + 1] ?? measure(text);
    if (offset >= end || (offset < first && next <= first)) continue;
    const logprob = logprobs[at] ?? null;
    if (logprob === null) return null;
    found.push(logprob);
  }
  return found;
}

/** Where each token begins, in UTF-16 units. */
function offsetsOf(tokens: readonly string[]): number[] {
  let end = 0;
  return tokens.map((token) => {
    end += token.length;
    return end - token.length;
  });
}

const codePoints = (text: string) => Array.from(text).length;
