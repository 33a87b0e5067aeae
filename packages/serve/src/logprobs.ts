import { TextPieces, type Codec, type ScoredToken } from "@astra-rl/lm";
import { codePoints } from "./reading.js";

const strictDecoder = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

/** A token's text; a part of a character as its bytes, such as "bytes:\xe2\x80", as in the API. */
function spelled(codec: Codec, id: number): { token: string; bytes: readonly number[] } {
  const bytes = codec.bytesOf(id);
  try {
    strictDecoder.decode(Uint8Array.from(bytes));
    return { token: codec.decode([id], { skipSpecialTokens: false }), bytes };
  } catch {
    const hex = bytes.map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
    return { token: `bytes:${hex}`, bytes };
  }
}

/** JSON has no −∞, which a token with no probability has; other servers send −9999, too. */
const finite = (logprob: number) => Math.max(-9999, logprob);

export function chatLogprobs(codec: Codec, tokens: readonly ScoredToken[]): object {
  const entry = ({ id, logprob }: { id: number; logprob: number | null }) => {
    const { token, bytes } = spelled(codec, id);
    return { token, logprob: finite(logprob!), bytes };
  };
  return {
    content: tokens.map((token) => ({ ...entry(token), top_logprobs: token.top.map(entry) })),
    refusal: null,
  };
}

/** Log-probabilities of a completion's tokens as they come. */
export class CompletionLogprobs {
  readonly #pieces: TextPieces;
  #end: number;

  /** @param start where its first token begins in the text, in code points */
  constructor(
    readonly codec: Codec,
    start: number,
  ) {
    this.#end = start;
    this.#pieces = new TextPieces((ids) => codec.decode(ids, { skipSpecialTokens: true }));
  }

  /** Of the next tokens. */
  next(tokens: readonly ScoredToken[]): object {
    const offsets = tokens.map(({ id }) => {
      const at = this.#end;
      this.#end += codePoints(this.#pieces.push(id));
      return at;
    });
    return completionLogprobs(this.codec, tokens, offsets);
  }
}

/** @param offsets where the tokens begin in the text, in code points */
export function completionLogprobs(
  codec: Codec,
  tokens: readonly ScoredToken[],
  offsets: readonly number[],
): object {
  const texts = tokens.map(({ id }) => spelled(codec, id).token);
  return {
    tokens: texts,
    token_logprobs: tokens.map(({ logprob }) => (logprob === null ? null : finite(logprob))),
    top_logprobs: tokens.map(({ logprob, top }, at) => {
      if (logprob === null) return null;
      // Different tokens may have the same text: the most likely one counts, and the token itself before all others.
      const entries = top.map(({ id, logprob: value }) => [spelled(codec, id).token, finite(value)] as const);
      const likeliest = Object.fromEntries(entries.toReversed()) as Record<string, number>;
      return { ...likeliest, [texts[at]!]: finite(logprob) };
    }),
    text_offset: offsets,
  };
}
