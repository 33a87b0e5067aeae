import { describeValue, UsageError } from "@astra-rl/base";
import { isObject, isText } from "../json-fields.js";
import { checkId, type Model } from "./model.js";
import type { Normalizer } from "./normalizers.js";
import { Part } from "./part.js";
import { setOf } from "./code-points.js";
import type { Piece } from "./split.js";
import { Trie } from "./trie.js";

/** A token that is matched in the text before any other processing. */
export interface AddedToken {
  readonly content: string;
  /** Omitted from decoded text if requested. */
  readonly special: boolean;
  /** Matched in the normalized text rather than in the input. */
  readonly normalized: boolean;
  /** Matched only where no word character is adjacent. */
  readonly singleWord: boolean;
  /** Also consumes the whitespace before it. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
}

/** Maximum length of an added token. */
const LONGEST = 1024;

/** Reads a token given as an object, or only as its text. */
export function readAddedToken(
  value: unknown,
  place: string,
  options: { special?: boolean } = {},
): AddedToken {
  if (isText(value)) {
    const special = options.special ?? true;
    const rest = { singleWord: false, lstrip: false, rstrip: false };
    return checkLength({ content: value, special, normalized: !special, ...rest }, place);
  }
  if (!isObject(value) || typeof value["content"] !== "string") {
    throw new UsageError(
      "invalid-added-token",
      `${place}: an added token must have its text under "content", got ${describeValue(value)}`,
    );
  }
  const part = new Part(value, place);
  const token = part.read((): AddedToken => {
    part.string("__type", { fallback: null });
    part.has("id");
    const given = part.boolean("special", { fallback: false });
    const special = options.special ?? given;
    return {
      content: part.string("content"),
      special,
      normalized: part.boolean("normalized", { fallback: !special }),
      singleWord: part.boolean("single_word", { fallback: false }),
      lstrip: part.boolean("lstrip", { fallback: false }),
      rstrip: part.boolean("rstrip", { fallback: false }),
    };
  });
  return checkLength(token, place);
}

function checkLength(token: AddedToken, place: string): AddedToken {
  if (token.content.length <= LONGEST) return token;
  throw new UsageError("token-too-long", `${place}: an added token must have ${LONGEST} characters at most`);
}

function equal(one: AddedToken, other: AddedToken): boolean {
  return (Object.keys(one) as (keyof AddedToken)[]).every((key) => one[key] === other[key]);
}

/** The tokens added to a model's vocabulary, numbered consecutively as in Python. */
export class AddedTokens {
  readonly idOf = new Map<string, number>();
  readonly tokenOf = new Map<number, AddedToken>();
  /** Texts of all tokens that have ever been special. */
  readonly special = new Set<string>();
  #largest = -1;

  constructor(readonly model: Model) {}

  /** Adds a token and returns its id. If the token exists already, only its matching options change. */
  add(token: AddedToken): number | null {
    if (token.content === "") return null;
    const known = this.idOf.get(token.content) ?? this.model.idOf.get(token.content);
    const id = known ?? this.#next();
    checkId("an added token", token.content, id);
    const before = this.tokenOf.get(id);
    if (before !== undefined && equal(before, token)) return id;
    this.idOf.set(token.content, id);
    this.tokenOf.set(id, token);
    this.#largest = Math.max(this.#largest, id);
    if (token.special) this.special.add(token.content);
    return id;
  }

  /** Based on the number of tokens rather than the largest id, as in Python, even if the vocabulary has gaps. */
  #next(): number {
    const size = this.model.idOf.size;
    if (this.#largest >= size || (size === 0 && this.#largest >= 0)) return this.#largest + 1;
    return size;
  }
}

/** A stretch of text, or the id of an added token. */
export type Section = Piece | number;

/** Finds added tokens in texts: leftmost first, the longest of those that start at the same place. */
export class AddedTokenSplitter {
  readonly #given = new Trie();
  readonly #normalized = new Trie();
  /** Decoded text of each token by id: the normalized form if it is matched in normalized text. */
  readonly #spellings = new Map<number, string>();

  constructor(
    readonly tokens: AddedTokens,
    normalizer: Normalizer | null,
    /** Treats special tokens as ordinary text. */
    readonly ignoreSpecial: boolean,
  ) {
    // If two tokens are equal after normalization, a special one has precedence.
    const all = [...tokens.tokenOf];
    for (const [id, token] of [...all.filter(([, t]) => t.special), ...all.filter(([, t]) => !t.special)]) {
      const spelling = token.normalized
        ? (normalizer?.normalize(token.content) ?? token.content)
        : token.content;
      if (spelling === "") {
        throw new UsageError(
          "empty-added-token",
          `the added token ${describeValue(token.content)} is empty when normalized, so it would be found ` +
            `everywhere; set its "normalized" to false`,
        );
      }
      this.#spellings.set(id, spelling);
      (token.normalized ? this.#normalized : this.#given).insert(spelling, id);
    }
  }

  /** The decoded text of an added token; undefined for other ids. */
  spellingOf(id: number): string | undefined {
    return this.#spellings.get(id);
  }

  splitGiven(piece: Piece): Section[] {
    return this.#split(piece, this.#given);
  }

  splitNormalized(piece: Piece): Section[] {
    return this.#split(piece, this.#normalized);
  }

  #split(piece: Piece, spellings: Trie): Section[] {
    const { text } = piece;
    if (spellings.next.size === 0) return text === "" ? [] : [piece];
    const sections: Section[] = [];
    const space = setOf("space");
    let start = 0; // text before this index is done
    const cut = (end: number) => {
      if (end > start) sections.push({ text: text.slice(start, end), first: piece.first && start === 0 });
    };
    for (let index = 0; index < text.length;) {
      const { id, end } = spellings.longestAt(text, index);
      if (id < 0) {
        index++;
        continue;
      }
      const token = this.tokens.tokenOf.get(id)!;
      const from = index;
      index = end;
      if (this.ignoreSpecial && this.tokens.special.has(token.content)) continue;
      if (token.singleWord && (endsWithWord(text, from) || beginsWithWord(text, end))) continue;
      let [left, right] = [from, end];
      if (token.lstrip) while (left > start && space.has(text.charCodeAt(left - 1))) left--;
      if (token.rstrip) {
        // Text before `start` was consumed by the last token's rstrip, so it is whitespace.
        right = Math.max(right, start);
        while (right < text.length && space.has(text.charCodeAt(right))) right++;
      }
      cut(left);
      sections.push(id);
      start = right;
    }
    cut(text.length);
    return sections;
  }
}

function endsWithWord(text: string, end: number): boolean {
  if (end === 0) return false;
  const unit = text.charCodeAt(end - 1);
  const low = unit >= 0xdc00 && unit < 0xe000;
  return setOf("word").has(low ? (text.codePointAt(end - 2) as number) : unit);
}

function beginsWithWord(text: string, start: number): boolean {
  return start < text.length && setOf("word").has(text.codePointAt(start) as number);
}
