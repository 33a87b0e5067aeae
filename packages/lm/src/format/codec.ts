import type { TokenDecoder } from "../generation/stop.js";
import type { Tokenizer } from "../tokenizer.js";

/**
 * Texts to stand before one that is to be encoded, in the order in which they are tried. With the first, a tokenizer of
 * bytes or of words has nothing to merge; vocabularies of runs of newlines need another.
 */
const ENCODING_ANCHORS = ["\n", "a", ".", "0"];
/** Texts to stand before ids that are to be decoded; no bytes, which decoders put together with bytes that follow. */
const DECODING_ANCHORS = ["a", "e", "0", "."];
/** Texts that a tokenizer alters, in one direction or the other, where it treats the first word of a text apart. */
const PROBES = ["x", " x", "  x", "x ", "\nx", "."];

interface Anchor {
  text: string;
  ids: readonly number[];
}

/**
 * Text to ids and back, for texts that stand somewhere in a row rather than alone.
 *
 * A tokenizer alone answers what a whole text is. In a row, texts follow each other, and many tokenizers write or read
 * the first word of whatever they are given otherwise (SentencePiece: a space is put before it and taken away again).
 * What is read would then not be what is recorded. A codec holds one promise: what `decode` says of ids is what they add
 * behind the text before them, and `continue` gives ids of which that is exactly the text.
 *
 * Where no ids of a tokenizer are that text, because it normalises (NFC) or lacks a character, `continue` gives what the
 * tokenizer itself makes of it, and `heard` says which text that is.
 */
export class Codec implements TokenDecoder {
  readonly #tokenizer: Tokenizer;
  /** null: ids say the same alone as behind others. */
  readonly #decoding: Anchor | null;
  /** null: a text has the same ids alone as behind others. */
  readonly #encoding: readonly Anchor[] | null;
  /** Text of single ids, special tokens spelled out, as far as it was asked for. */
  readonly #texts = new Map<number, string>();

  /** The codec of a tokenizer; the same one each time. */
  static of(tokenizer: Tokenizer): Codec {
    let codec = codecs.get(tokenizer);
    if (codec === undefined) codecs.set(tokenizer, (codec = new Codec(tokenizer)));
    return codec;
  }

  private constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
    const anchors = (texts: readonly string[]) =>
      texts
        .map((text) => ({ text, ids: tokenizer.encode(text) }))
        .filter(({ text, ids }) => ids.length > 0 && this.#say(ids, SPELLED).trim() === text.trim());
    this.#encoding = anchors(ENCODING_ANCHORS);
    const [decoding] = anchors(DECODING_ANCHORS);
    this.#decoding =
      decoding === undefined ? null : { ids: decoding.ids, text: this.#say(decoding.ids, SPELLED) };
    const probes = PROBES.map((text) => this.continue(text));
    if (probes.every((ids) => this.decode(ids) === this.#say(ids))) this.#decoding = null;
    if (PROBES.every((text) => this.decode(tokenizer.encode(text)) === text)) this.#encoding = null;
  }

  /** Ids that Python's `tokenizer(text)` puts before a text (beginning-of-text); [] for GPT-2 and Qwen. */
  get prefix(): readonly number[] {
    return this.#tokenizer.prefixIds;
  }

  /**
   * A text that begins a row: what Python's `tokenizer(text)` gives, less what some tokenizers put behind a text (an
   * end-of-text), since here more follows.
   */
  begin(text: string): number[] {
    return [...this.prefix, ...this.#tokenizer.encode(text)];
  }

  /** Ids that, behind other text, say exactly this text. Special tokens that it spells out are such tokens. */
  continue(text: string): number[] {
    if (text === "") return [];
    const alone = () => this.#tokenizer.encode(text);
    if (this.#encoding === null) return alone();
    let closest: number[] | undefined;
    for (const anchor of this.#encoding) {
      const ids = this.#tokenizer.encode(anchor.text + text);
      if (!anchor.ids.every((id, index) => ids[index] === id)) continue;
      const behind = ids.slice(anchor.ids.length);
      if (this.decode(behind, SPELLED) === text) return behind;
      closest ??= behind;
    }
    const ids = alone();
    return this.decode(ids, SPELLED) === text ? ids : (closest ?? ids);
  }

  decode(ids: readonly number[], options: { skipSpecialTokens?: boolean } = {}): string {
    if (this.#decoding === null || ids.length === 0) return this.#say(ids, options);
    const { text, ids: before } = this.#decoding;
    const whole = this.#say([...before, ...ids], options);
    return whole.startsWith(text) ? whole.slice(text.length) : this.#say(ids, options);
  }

  /**
   * What a row says that holds such ids, special tokens spelled out: the text itself, unless the tokenizer has no ids for
   * it. It is for `continue` unless `begin` is asked for. Ids in hand are heard by `decode(ids, { skipSpecialTokens:
   * false })` as well.
   */
  heard(text: string, how: "begin" | "continue" = "continue"): string {
    if (how === "continue") return this.decode(this.continue(text), SPELLED);
    return this.#say(this.#tokenizer.encode(text), SPELLED);
  }

  /**
   * UTF-8 bytes of text behind each id, special tokens spelled out. Of a character that lies in several ids the last one
   * has all bytes, the others none.
   */
  byteLengths(ids: readonly number[]): number[] {
    const lengths: number[] = [];
    while (lengths.length < ids.length) lengths.push(...this.#lengthsOfRun(ids, lengths.length));
    return lengths;
  }

  /** For the fewest ids from a place on that say whole characters; for one where they never do. */
  #lengthsOfRun(ids: readonly number[], at: number): number[] {
    const alone = this.#text(ids[at]!);
    const lengths: number[] = [];
    let bytes = 0;
    let text = alone;
    for (let end = at + 1; ; end += 1) {
      const whole = text.replace(UNFINISHED, "");
      // An id may finish a character and begin another; but what is no character behind a whole one stays none.
      if (whole.includes(INVALID)) break;
      lengths.push(Buffer.byteLength(whole) - bytes);
      bytes = Buffer.byteLength(whole);
      if (whole === text) return lengths;
      if (end === ids.length) break;
      text = this.decode(ids.slice(at, end + 1), SPELLED);
    }
    return [Buffer.byteLength(alone)];
  }

  /** The text of ids alone, nothing cleaned up: a space that is taken away before a point was sampled all the same. */
  #say(ids: readonly number[], options: { skipSpecialTokens?: boolean } = {}): string {
    return this.#tokenizer.decode(ids, { ...options, cleanUpSpaces: false });
  }

  #text(id: number): string {
    let text = this.#texts.get(id);
    if (text === undefined) this.#texts.set(id, (text = this.decode([id], SPELLED)));
    return text;
  }
}

const codecs = new WeakMap<Tokenizer, Codec>();
const SPELLED = { skipSpecialTokens: false };
const INVALID = "\uFFFD";
/** The beginning of a character at the end of a text: one U+FFFD, or one for each of its bytes. */
const UNFINISHED = /\uFFFD{1,3}$/u;
