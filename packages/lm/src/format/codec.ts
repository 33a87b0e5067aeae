import type { TokenDecoder } from "../generation/stop.js";
import { TextPieces } from "../generation/text-pieces.js";
import type { Tokenizer } from "../tokenizer.js";

/**
 * Texts put before a text to be encoded, in the order in which they are tried. Byte and word tokenizers have
 * nothing to merge with the first one; vocabularies with runs of newlines need another.
 */
const ENCODING_ANCHORS = ["\n", "a", ".", "0"];
/** Texts put before ids to be decoded. No single bytes, which decoders would combine with following ones. */
const DECODING_ANCHORS = ["a", "e", "0", "."];
/** Texts that tokenizers alter, in either direction, if they treat the first word of a text specially. */
const PROBES = ["x", " x", "  x", "x ", "\nx", "."];

interface Anchor {
  text: string;
  ids: readonly number[];
}

/**
 * Encodes and decodes texts in the middle of a row.
 *
 * A tokenizer treats its input as a whole text, and many treat the first word specially (SentencePiece adds a
 * space before it and removes it again). For texts that follow others in a row, ids and recorded text would
 * then disagree. A codec guarantees that `decode` returns exactly the text that ids add after preceding text,
 * and that `continue` returns ids that decode to exactly the given text.
 *
 * If no ids decode to the text, because the tokenizer normalizes (NFC) or lacks a character, `continue` falls
 * back to the tokenizer's own encoding, and `heard` returns the text of those ids.
 */
export class Codec implements TokenDecoder {
  readonly #tokenizer: Tokenizer;
  /** null: ids decode the same alone as after others. */
  readonly #decoding: Anchor | null;
  /** null: a text encodes the same alone as after others. */
  readonly #encoding: readonly Anchor[] | null;

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

  /** Ids that Python's `tokenizer(text)` prepends (beginning-of-text); [] for GPT-2 and Qwen. */
  get prefix(): readonly number[] {
    return this.#tokenizer.prefixIds;
  }

  /**
   * Ids of a text that starts a row: as from Python's `tokenizer(text)`, but without an appended end-of-text,
   * since more follows.
   */
  begin(text: string): number[] {
    return [...this.prefix, ...this.#tokenizer.encode(text)];
  }

  /** Ids of a text that is a whole row and spells its special tokens itself, such as one that a chat template wrote. */
  whole(text: string): number[] {
    return this.#tokenizer.encode(text);
  }

  /** Whether an id is a special token, such as the end of a turn. */
  isSpecial(id: number): boolean {
    return this.#say([id], { skipSpecialTokens: true }) === "" && this.#say([id], SPELLED) !== "";
  }

  /**
   * Ids that, after other text, decode to exactly this text. Special tokens spelled out in it become special tokens.
   */
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
   * The text that each id adds to those before it; together they are the text of all ids. An id that holds only a part of a
   * character adds nothing, and the one that completes it adds the character.
   *
   * @param how begin: they are a text as `begin` encodes it, without the prefix. Default "continue"
   */
  spell(ids: readonly number[], how: "begin" | "continue" = "continue"): string[] {
    const pieces = new TextPieces((part, isFirst) =>
      isFirst && how === "begin" ? this.#say(part, SPELLED) : this.decode(part, SPELLED),
    );
    const spelled = ids.map((id) => pieces.push(id));
    if (spelled.length > 0) spelled[spelled.length - 1]! += pieces.end();
    return spelled;
  }

  /** The bytes of an id, which may be a part of a character. */
  bytesOf(id: number): readonly number[] {
    return this.#tokenizer.partOf(id) ?? [...Buffer.from(this.decode([id], SPELLED))];
  }

  /**
   * The text that the model reads for `text`, special tokens included: `text` itself, unless the tokenizer
   * has no ids for it. Assumes `continue` unless `how` is "begin". For existing ids use `decode(ids, {
   * skipSpecialTokens: false })`.
   */
  heard(text: string, how: "begin" | "continue" = "continue"): string {
    if (how === "continue") return this.decode(this.continue(text), SPELLED);
    return this.#say(this.#tokenizer.encode(text), SPELLED);
  }

  /** Decodes ids alone, without cleaning up spaces: a space before a period was sampled, too. */
  #say(ids: readonly number[], options: { skipSpecialTokens?: boolean } = {}): string {
    return this.#tokenizer.decode(ids, { ...options, cleanUpSpaces: false });
  }
}

const codecs = new WeakMap<Tokenizer, Codec>();
const SPELLED = { skipSpecialTokens: false };
