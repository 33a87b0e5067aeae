import { createHash } from "node:crypto";
import { join } from "node:path";
import { describeValue, makeFolder, UsageError, writeFileAtomic } from "@astra-rl/base";
import { parseJsonObject, readFileIfThere } from "./json-fields.js";
import { AddedTokens, AddedTokenSplitter, type Section } from "./tokenizer/added-tokens.js";
import { cleanUp, readDecoder, tokenBytes, type Decoder } from "./tokenizer/decoders.js";
import { readModel, type Model } from "./tokenizer/model.js";
import { readNormalizer, type Normalizer } from "./tokenizer/normalizers.js";
import { Part } from "./tokenizer/part.js";
import { NO_FRAME, readPostProcessor, type Frame } from "./tokenizer/post-processor.js";
import { readPreTokenizer, type PreTokenizer } from "./tokenizer/pre-tokenizers.js";
import { classOf, readListed, readSettings } from "./tokenizer/settings.js";
import {
  AROUND,
  contradiction,
  vocabularyFilesOf,
  type Json,
  type NamedClass,
} from "./tokenizer/tokenizer-classes.js";
import { readVocabularyFiles } from "./tokenizer/vocabulary-files.js";

/** Tokenizer files of a Hugging Face folder; those present are copied with every checkpoint. */
export const TOKENIZER_FILES: readonly string[] = [
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "chat_template.jinja",
  "tokenizer.model",
  "vocab.json",
  "merges.txt",
  "vocab.txt",
  "sentencepiece.bpe.model",
];

/** Any one of these shows that a folder is meant to contain a tokenizer. */
export const VOCABULARIES = ["tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model"];

/**
 * Encodes and decodes text exactly like Python's `tokenizers` and `transformers`. Anything not known to match is
 * refused on loading, with an error that names the component and the option (docs/guides/tokenizers.md).
 *
 * Nothing is added or cleaned up by default: no beginning-of-text token unless requested, no cleanup of spaces unless
 * the checkpoint asks for it. So for a lossless tokenizer (byte-level BPE), decode(encode(text)) equals the text if it
 * is well-formed Unicode. Padding and truncation are handled elsewhere.
 */
export class Tokenizer {
  /** One more than the largest id that `encode` can return. */
  readonly vocabSize: number;
  /** Id of the beginning-of-text token; null if the tokenizer has none. The others likewise. */
  readonly bosId: number | null;
  readonly eosId: number | null;
  readonly padId: number | null;
  /** Ids that `addSpecialTokens` puts before and after those of a text. */
  readonly prefixIds: readonly number[];
  readonly suffixIds: readonly number[];
  /** Texts of the named tokens ("bos_token"). */
  readonly specialTokens: Readonly<Record<string, string>>;
  /** tokenizer_config.json as read; {} if absent. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** The original files, by name, byte for byte. */
  readonly directoryFiles: ReadonlyMap<string, Uint8Array>;
  /** These, and config.json: input of `fromFiles` to create the same tokenizer, for example in another thread. */
  readonly definingFiles: ReadonlyMap<string, Uint8Array>;

  #fingerprint: string | null = null;
  readonly #normalizer: Normalizer | null;
  readonly #preTokenizer: PreTokenizer | null;
  readonly #model: Model;
  readonly #decoder: Decoder | null;
  /** Its definition in tokenizer.json. */
  readonly #decoderJson: unknown;
  readonly #added: AddedTokens;
  readonly #splitter: AddedTokenSplitter;
  readonly #cleanUpSpaces: boolean;

  private constructor(
    contents: ReadonlyMap<string, Uint8Array>,
    /** The folder that it was loaded from, for messages. */
    readonly where: string,
  ) {
    this.definingFiles = contents;
    const files = new Map(contents);
    const place = (name: string) => join(where, name);
    const read = (name: string) => {
      const bytes = files.get(name);
      return bytes === undefined ? null : parseJsonObject(bytes, place(name));
    };
    // Not a tokenizer file, but Python uses it to determine the class.
    const config = read("config.json");
    files.delete("config.json");
    this.directoryFiles = files;
    this.settings = read("tokenizer_config.json") ?? {};
    const given = read("tokenizer.json");
    const { json, file, specialTokens } = this.#definition(given, config, where);
    const settings = readSettings({
      place,
      definition: json,
      isFile: given !== null,
      // Python uses the vocabulary's own tokens only if tokenizer_config.json lists none.
      settings:
        "extra_special_tokens" in this.settings
          ? this.settings
          : { additional_special_tokens: specialTokens, ...this.settings },
      specialTokensMap: read("special_tokens_map.json"),
      addedTokens: read("added_tokens.json"),
      model: config,
    });
    const definition = new Part(settings.definition, file);
    const optional = <T>(name: string, reader: (part: Part) => T): T | null => {
      const found = definition.nested(name);
      return found && found.read(reader);
    };
    const model = definition.nested("model");
    if (model === null)
      throw new UsageError("missing-key", `${file}: is not a usable tokenizer: it has no "model"`);
    this.#model = model.read(readModel);
    this.#normalizer = optional("normalizer", readNormalizer);
    this.#preTokenizer = optional("pre_tokenizer", readPreTokenizer);
    this.#decoder = optional("decoder", readDecoder);
    this.#decoderJson = settings.definition["decoder"];
    this.#cleanUpSpaces = settings.cleanUpSpaces && this.#model.type !== "BPE";
    if (this.#normalizer?.dropsBeginning === true && prependsToFirst(settings.definition["pre_tokenizer"])) {
      throw new UsageError(
        "ambiguous-beginning",
        `${file}: "pre_tokenizer" (Metaspace): "prepend_scheme" is "first", and "normalizer" may remove the beginning of ` +
          `a text, so that the first piece is unknown; set "prepend_scheme" to "always" or "never"`,
      );
    }

    this.#added = new AddedTokens(this.#model);
    const listed = readListed(settings.definition, file);
    for (const [index, token] of listed.entries()) {
      const id = this.#added.add(token);
      const said = (settings.definition["added_tokens"] as { id?: unknown }[])[index]!.id;
      if (id === null || id === said) continue;
      throw new UsageError(
        "token-id-mismatch",
        `${file}: the added token ${describeValue(token.content)} must have an id that follows from the vocabulary: ` +
          `Python gives it ${id}, but the file says ${describeValue(said)}; save the tokenizer again with a ` +
          `recent transformers`,
      );
    }
    for (const token of settings.tokens) this.#added.add(token);
    try {
      this.#splitter = new AddedTokenSplitter(this.#added, this.#normalizer, settings.splitSpecialTokens);
    } catch (cause) {
      throw cause instanceof UsageError
        ? new UsageError(cause.rule, `${file}: ${cause.message}`, { cause })
        : cause;
    }

    let largest = -1;
    for (const ids of [this.#model.tokenOf.keys(), this.#added.tokenOf.keys()]) {
      for (const id of ids) largest = Math.max(largest, id);
    }
    this.vocabSize = largest + 1;
    if (this.vocabSize === 0)
      throw new UsageError("empty-vocabulary", `${file}: the vocabulary must not be empty`);

    const frame = this.#frame(settings.definition["post_processor"], () =>
      optional("post_processor", readPostProcessor),
    );
    this.prefixIds = frame.prefix;
    this.suffixIds = frame.suffix;
    this.specialTokens = Object.fromEntries(settings.named);
    const special = (name: string) => {
      const token = settings.named.get(name);
      return token === undefined ? null : this.idOf(token);
    };
    this.bosId = special("bos_token");
    this.eosId = special("eos_token");
    this.padId = special("pad_token");
    if (settings.rebuiltBy !== null) this.#checkWords(file, settings.rebuiltBy);
  }

  /** Loads the tokenizer of a Hugging Face folder. Throws UsageError if it is missing or malformed. */
  static async load(directory: string): Promise<Tokenizer> {
    const files = new Map<string, Uint8Array>();
    for (const name of [...TOKENIZER_FILES, "config.json"]) {
      const bytes = await readFileIfThere(join(directory, name));
      if (bytes !== null) files.set(name, bytes);
    }
    return new Tokenizer(files, directory);
  }

  /** Creates a tokenizer from the contents of its files, by file name; `where` starts error messages. */
  static fromFiles(files: ReadonlyMap<string, Uint8Array>, where = "tokenizer"): Tokenizer {
    return new Tokenizer(files, where);
  }

  /**
   * Token ids of a text; [] for the empty text.
   *
   * Text that contains a special token ("<|endoftext|>") is encoded as that token, as in Python.
   *
   * @param options.addSpecialTokens adds `prefixIds` and `suffixIds`, like Python's `tokenizer(text)`. Default false,
   * since continuations must not get any.
   */
  encode(text: string, options: { addSpecialTokens?: boolean } = {}): number[] {
    const { addSpecialTokens = false } = options;
    if (typeof text !== "string") {
      throw new UsageError(
        "text-not-a-string",
        `Tokenizer.encode: the text must be a string, got ${describeValue(text)}`,
      );
    }
    const ids: number[] = addSpecialTokens ? [...this.prefixIds] : [];
    const sections = this.#splitter.splitGiven({ text: wellFormed(text), first: true });
    for (const section of sections.flatMap((each) => this.#normalized(each))) {
      if (typeof section === "number") ids.push(section);
      else {
        for (const piece of this.#preTokenizer?.([section]) ?? [section]) {
          if (piece.text !== "") this.#model.encode(piece.text, ids);
        }
      }
    }
    if (addSpecialTokens) for (const id of this.suffixIds) ids.push(id);
    return ids;
  }

  /**
   * The text of token ids; "" for []. Invalid UTF-8 (a split character) becomes U+FFFD.
   *
   * Ids outside the vocabulary, which a model with a padded vocabulary can sample, have no text.
   *
   * @param options.skipSpecialTokens omits special tokens. Default true.
   * @param options.cleanUpSpaces removes spaces before punctuation. Default: "clean_up_tokenization_spaces" of
   * tokenizer_config.json, but never for BPE, whose texts it would damage.
   */
  decode(
    ids: readonly number[],
    options: { skipSpecialTokens?: boolean; cleanUpSpaces?: boolean } = {},
  ): string {
    const { skipSpecialTokens = true, cleanUpSpaces = this.#cleanUpSpaces } = options;
    const tokens: string[] = [];
    for (const id of ids) {
      if (!Number.isSafeInteger(id) || id < 0) {
        throw new UsageError(
          "invalid-token-id",
          `Tokenizer.decode: a token id must be an integer ≥ 0, got ${describeValue(id)}`,
        );
      }
      const token = this.#splitter.spellingOf(id) ?? this.#model.tokenOf.get(id);
      if (token === undefined || (skipSpecialTokens && this.#added.special.has(token))) continue;
      tokens.push(token);
    }
    const text = this.#decoder === null ? tokens.join(" ") : this.#decoder(tokens).join("");
    return cleanUpSpaces ? cleanUp(text) : text;
  }

  /** Id of a token given by its vocabulary entry; null if there is none. */
  idOf(token: string): number | null {
    return this.#added.idOf.get(token) ?? this.#model.idOf.get(token) ?? null;
  }

  /** The bytes of an id that stands for bytes, which may be a part of a character; null for any other. */
  partOf(id: number): readonly number[] | null {
    const token = this.#model.tokenOf.get(id);
    if (token === undefined || this.#splitter.spellingOf(id) !== undefined) return null;
    return tokenBytes(this.#decoderJson, token);
  }

  /** Hash of the files that define the tokenizer, byte for byte: if equal, all texts are encoded the same. */
  get fingerprint(): string {
    if (this.#fingerprint !== null) return this.#fingerprint;
    const definition = this.directoryFiles.get("tokenizer.json");
    const byName = [...this.directoryFiles].sort(([a], [b]) => (a < b ? -1 : 1));
    const hash = createHash("sha256");
    for (const part of definition === undefined ? byName.flat() : [definition]) hash.update(part);
    return (this.#fingerprint = hash.digest("hex"));
  }

  /** Writes the original files, unchanged, into a folder. */
  async save(directory: string): Promise<void> {
    makeFolder(directory);
    for (const [name, bytes] of this.directoryFiles) writeFileAtomic(join(directory, name), [bytes]);
  }

  #normalized(section: Section): Section[] {
    if (typeof section === "number") return [section];
    const text = this.#normalizer?.normalize(section.text) ?? section.text;
    return this.#splitter.splitNormalized({ text, first: section.first });
  }

  /**
   * The contents of tokenizer.json, or, if there is none, what the class builds from its vocabulary files; with the
   * file name for messages.
   */
  #definition(json: Json | null, model: Json | null, where: string) {
    const place = (name: string) => join(where, name);
    if (json !== null) return { json, file: place("tokenizer.json"), specialTokens: [] };
    const files = this.directoryFiles;
    const { className } = classOf({ settings: this.settings, model, place });
    const read = readVocabularyFiles(className, (name) => files.get(name) ?? null, place);
    if (read === null) {
      const found = [...files.keys()].join(", ");
      const missing = vocabularyFilesOf(className);
      const instead = missing.length === 0 ? "" : `, or ${missing.join(" and ")}`;
      throw new UsageError(
        "missing-tokenizer",
        `${where}: a tokenizer needs tokenizer.json${instead}, but there is none` +
          (found ? ` (found: ${found}; save it again with a recent transformers)` : ""),
      );
    }
    return {
      json: read.definition,
      file: place(vocabularyFilesOf(className)[0]!),
      specialTokens: read.specialTokens,
    };
  }

  /** A rebuilt tokenizer names the tokens around a text by their text. */
  #frame(given: unknown, read: () => Frame | null): Frame {
    const around = (given as { [AROUND]?: [string | null, string | null] } | null | undefined)?.[AROUND];
    if (around === undefined) return read() ?? NO_FRAME;
    const [prefix, suffix] = around.map((token) => (token === null ? [] : [this.idOf(token)!]));
    return { prefix: prefix!, suffix: suffix! };
  }

  /**
   * Refuses a rebuilt tokenizer that loses the space between two known words: its class is for other vocabularies.
   * Tokenizers that change words themselves, by lower-casing or for lack of a token, are accepted.
   */
  #checkWords(file: string, rebuiltBy: NamedClass): void {
    const read = (text: string) => this.decode(this.encode(text)).trim();
    if (read("a") !== "a" || read("b") !== "b" || read("a b") === "a b") return;
    throw contradiction(file, `"a b" is read as ${describeValue(read("a b"))}`, rebuiltBy);
  }
}

/** Lone surrogates are not valid text: they become U+FFFD. */
function wellFormed(text: string): string {
  return /\p{Cs}/u.test(text) ? Buffer.from(text).toString() : text;
}

/** Whether a pre-tokenizer, already validated, contains a Metaspace that prepends only to the first piece. */
function prependsToFirst(preTokenizer: unknown): boolean {
  const { type, prepend_scheme: scheme, pretokenizers } = (preTokenizer ?? {}) as Record<string, unknown>;
  if (type === "Sequence") return (pretokenizers as unknown[]).some(prependsToFirst);
  return type === "Metaspace" && scheme === "first";
}
