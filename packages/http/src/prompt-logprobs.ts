import type { ScoredTokens } from "./answer.js";

/**
 * The log-probabilities of the tokens in the last part of a prompt, from a server that echoes the prompt. A token that begins
 * before this part and ends in it counts, since the part cannot be generated without it.
 *
 * @param text what the server returned: the prompt, and what it generated after it
 * @param start where the part begins in the prompt, in UTF-16 units
 * @returns null where the tokens do not cover the prompt, or one of the part has no log-probability
 */
export function promptLogprobs(
  text: string,
  scored: ScoredTokens,
  prompt: string,
  start: number,
): number[] | null {
  if (!text.startsWith(prompt)) return null;
  const { tokens, logprobs, offsets: given } = withoutBegin(text, scored);
  const characters = Array.from(text);
  const offsets = tokens.join("").startsWith(text) ? offsetsOf(tokens) : (given ?? []);
  if (!areOffsets(offsets, tokens, characters)) return null;
  const [first, end] = [codePoints(prompt.slice(0, start)), codePoints(prompt)];
  const found: number[] = [];
  for (const [at, offset] of offsets.entries()) {
    const next = offsets[at + 1] ?? characters.length;
    if (offset >= end || (offset < first && next <= first)) continue;
    const logprob = logprobs[at] ?? null;
    if (logprob === null) return null;
    found.push(logprob);
  }
  return found;
}

/** Without a first token that the server's tokenizer puts before the prompt, such as `<s>`, which is no part of the text. */
function withoutBegin(text: string, scored: ScoredTokens): ScoredTokens {
  const [begin, ...rest] = scored.tokens;
  if (begin === undefined || !rest.join("").startsWith(text) || scored.logprobs[0] !== null) return scored;
  return { tokens: rest, logprobs: scored.logprobs.slice(1) };
}

/** Where each token begins, in code points. */
function offsetsOf(tokens: readonly string[]): number[] {
  let end = 0;
  return tokens.map((token) => {
    const begin = end;
    end += codePoints(token);
    return begin;
  });
}

/** The replacement for a partial character. */
const PART = "\ufffd";

/**
 * Whether a server's offsets agree with its text. A token that is a part of a character has no text, so only the
 * server knows its offset; a server that counts each part as a character shifts all later ones. Hence every other token
 * must stand between its offset and the next, but for white space, which decoders take from a token alone, and the last
 * one at the text's end; behind it, only a token that ends texts and is none of it, such as `</s>`.
 */
function areOffsets(
  offsets: readonly number[],
  tokens: readonly string[],
  characters: readonly string[],
): boolean {
  if (offsets.length !== tokens.length || offsets[0] !== 0) return false;
  return offsets.every((offset, at) => {
    const token = tokens[at]!;
    const next = offsets[at + 1] ?? characters.length;
    if (offset < 0 || next < offset || next > characters.length) return false;
    if (token === "" || token.includes(PART)) return true;
    if (offset === characters.length) return !characters.join("").endsWith(token.trim());
    return characters.slice(offset, next).join("").trim() === token.trim();
  });
}

const codePoints = (text: string) => Array.from(text).length;
