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
  const { tokens, logprobs, offsets: given = [] } = withoutBegin(prompt, scored);
  const characters = Array.from(text);
  const isSpelled = spells(tokens, prompt);
  if (!isSpelled && !areOffsets(given, tokens, characters)) return null;
  const offsets = isSpelled ? offsetsOf(tokens) : given;
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
function withoutBegin(prompt: string, scored: ScoredTokens): ScoredTokens {
  const [begin, ...rest] = scored.tokens;
  if (begin === undefined || !spells(rest, prompt) || scored.logprobs[0] !== null) return scored;
  return { tokens: rest, logprobs: scored.logprobs.slice(1) };
}

/** A part of a character, as in OpenAI's completions. */
const BYTES = /^bytes:((?:\\x[0-9a-f]{2})+)$/iu;

function bytesOf(token: string): Buffer {
  const hex = BYTES.exec(token)?.[1];
  return hex === undefined ? Buffer.from(token) : Buffer.from(hex.replaceAll("\\x", ""), "hex");
}

/** Whether tokens begin with a text, byte for byte. */
function spells(tokens: readonly string[], text: string): boolean {
  const wanted = Buffer.from(text);
  return Buffer.concat(tokens.map(bytesOf)).subarray(0, wanted.length).equals(wanted);
}

/** Where each token begins, in code points; a part of a character where the character begins. */
function offsetsOf(tokens: readonly string[]): number[] {
  let begun = 0;
  return tokens.map((token) => {
    const bytes = bytesOf(token);
    const isWithin = bytes.length > 0 && isContinuation(bytes[0]!);
    const begin = isWithin ? begun - 1 : begun;
    begun += bytes.filter((byte) => !isContinuation(byte)).length;
    return begin;
  });
}

const isContinuation = (byte: number): boolean => byte >> 6 === 0b10;

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
    if (token === "" || token.includes(PART) || BYTES.test(token)) return true;
    if (offset === characters.length) return !characters.join("").endsWith(token.trim());
    return characters.slice(offset, next).join("").trim() === token.trim();
  });
}

const codePoints = (text: string) => Array.from(text).length;
