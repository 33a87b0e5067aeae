import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { Tokenizer as LibraryTokenizer } from "@huggingface/tokenizers";
import { describeValue, UsageError, writeFileAtomic } from "@astra-rl/torch";
import { parseJsonObject, readFileIfThere, reason } from "./json-fields.js";

/** The part of the library that is used. Its own types do not resolve in an ES module (imports without suffix). */
interface TokenizerEngine {
  encode(text: string, options: { add_special_tokens: boolean }): { ids: (number | undefined)[] };
  decode(
    ids: readonly number[],
    options: { skip_special_tokens: boolean; clean_up_tokenization_spaces: boolean },
  ): string;
  token_to_id(token: string): number | undefined;
  get_vocab(): Map<string | undefined, number>;
}

/** Files that describe a tokenizer in a Hugging Face folder; those that are there travel with every checkpoint. */
export const TOKENIZER_FILES = [
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "chat_template.jinja",
  "tokenizer.model",
  "vocab.json",
  "merges.txt",
  "vocab.txt",
] as const;

/**
 * Text to token ids and back, as the tokenizer.json of a Hugging Face folder says.
 *
 * Neither direction adds or repairs anything by itself: no beginning-of-text token unless asked for, no clean-up of
 * spaces. So where the tokenizer is lossless (byte-level BPE) decode(encode(text)) is the text, provided that it is
 * well-formed Unicode. It knows nothing of padding or truncation, which belong to batching and to the window.
 */
export class Tokenizer {
  /** One more than the largest id that `encode` can give. */
  readonly vocabSize: number;
  /** Id of the beginning-of-text token; null where the tokenizer has none. Likewise the others. */
  readonly bosId: number | null;
  readonly eosId: number | null;
  readonly padId: number | null;
  /** tokenizer_config.json as it was read; {} where there is none. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** The files it was made from, by name, byte for byte. */
  readonly directoryFiles: ReadonlyMap<string, Uint8Array>;

  readonly #engine: TokenizerEngine;
  /** Whether an id stands for a token: vocabularies may have holes. */
  readonly #known: boolean[] = [];

  private constructor(files: ReadonlyMap<string, Uint8Array>, where: string) {
    const definition = files.get("tokenizer.json");
    if (definition === undefined) {
      const found = [...files.keys()].join(", ");
      throw new UsageError(
        `${where}: a tokenizer needs tokenizer.json, but there is none` +
          (found ? ` (found: ${found}; save it once more with a recent transformers)` : ""),
      );
    }
    const place = join(where, "tokenizer.json");
    const settingsFile = files.get("tokenizer_config.json");
    this.settings =
      settingsFile === undefined ? {} : parseJsonObject(settingsFile, join(where, "tokenizer_config.json"));
    this.directoryFiles = files;
    const json = parseJsonObject(definition, place);
    try {
      this.#engine = new LibraryTokenizer(checked(json, this.settings), this.settings) as TokenizerEngine;
      for (const [token, id] of this.#engine.get_vocab()) {
        if (token === undefined) continue;
        if (!Number.isSafeInteger(id) || id < 0)
          throw new Error(`token ${describeValue(token)} has id ${id}`);
        this.#known[id] = true;
      }
    } catch (cause) {
      throw new UsageError(`${place}: is not a tokenizer that can be used: ${reason(cause)}`, { cause });
    }
    this.vocabSize = this.#known.length;
    if (this.vocabSize === 0) throw new UsageError(`${place}: the vocabulary must not be empty`);

    const mapFile = files.get("special_tokens_map.json");
    const specials =
      mapFile === undefined ? {} : parseJsonObject(mapFile, join(where, "special_tokens_map.json"));
    const special = (name: string) => this.#specialId(this.settings[name] ?? specials[name]);
    this.bosId = special("bos_token");
    this.eosId = special("eos_token");
    this.padId = special("pad_token");
  }

  /** Reads the tokenizer of a Hugging Face folder. Throws UsageError where it is missing or malformed. */
  static async load(directory: string): Promise<Tokenizer> {
    const files = new Map<string, Uint8Array>();
    for (const name of TOKENIZER_FILES) {
      const bytes = await readFileIfThere(join(directory, name));
      if (bytes !== null) files.set(name, bytes);
    }
    return new Tokenizer(files, directory);
  }

  /** Makes a tokenizer from the contents of its files, by file name; `where` begins the error messages. */
  static fromFiles(files: ReadonlyMap<string, Uint8Array>, where = "tokenizer"): Tokenizer {
    return new Tokenizer(new Map(files), where);
  }

  /**
   * Token ids of a text; [] for the empty text.
   *
   * Text that spells a special token out ("<|endoftext|>") gives that token, as in Python.
   *
   * @param options.addSpecialTokens adds what the tokenizer puts around a text (a beginning-of-text token, …).
   * Default false, since continuations must not get any.
   */
  encode(text: string, options: { addSpecialTokens?: boolean } = {}): number[] {
    const { addSpecialTokens = false } = options;
    if (typeof text !== "string") {
      throw new UsageError(`Tokenizer.encode: the text must be a string, got ${describeValue(text)}`);
    }
    if (text === "" && !addSpecialTokens) return [];
    const { ids } = this.#engine.encode(text, { add_special_tokens: addSpecialTokens });
    // A character outside a vocabulary without an unknown token has no id and is dropped, as the Rust library does.
    return ids.filter((id) => id !== undefined);
  }

  /**
   * The text of token ids; "" for []. Bytes that are no valid UTF-8 (a character cut in two) give U+FFFD.
   *
   * Ids that the vocabulary lacks, which a model with a padded vocabulary can sample, have no text.
   *
   * @param options.skipSpecialTokens leaves special tokens out. Default true.
   */
  decode(ids: readonly number[], options: { skipSpecialTokens?: boolean } = {}): string {
    const { skipSpecialTokens = true } = options;
    const known: number[] = [];
    for (const id of ids) {
      if (!Number.isSafeInteger(id) || id < 0) {
        throw new UsageError(`Tokenizer.decode: a token id must be an integer ≥ 0, got ${describeValue(id)}`);
      }
      if (this.#known[id] ?? false) known.push(id);
    }
    if (known.length === 0) return "";
    return this.#engine.decode(known, {
      skip_special_tokens: skipSpecialTokens,
      clean_up_tokenization_spaces: false,
    });
  }

  /** Id of a token given as it is spelled in the vocabulary; null where there is none. */
  idOf(token: string): number | null {
    return this.#engine.token_to_id(token) ?? null;
  }

  /** Writes the files that it was made from, unchanged, into a folder. */
  async save(directory: string): Promise<void> {
    await mkdir(directory, { recursive: true });
    for (const [name, bytes] of this.directoryFiles) writeFileAtomic(join(directory, name), [bytes]);
  }

  /** `token` is spelled out, or an object with its spelling under "content". */
  #specialId(token: unknown): number | null {
    if (typeof token === "string") return this.idOf(token);
    if (typeof token === "object" && token !== null && "content" in token) {
      return typeof token.content === "string" ? this.idOf(token.content) : null;
    }
    return null;
  }
}

/**
 * tokenizer.json as the library needs it. It takes almost anything and fails later, at the first text; so look here.
 */
function checked(
  json: Record<string, unknown>,
  settings: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  return { ...json, model: checkedModel(json["model"]), added_tokens: addedTokens(json, settings) };
}

function checkedModel(model: unknown): object {
  if (typeof model !== "object" || model === null) {
    throw new Error(`"model" must be an object, got ${describeValue(model)}`);
  }
  const { vocab, merges, ...rest } = model as Record<string, unknown>;
  // Files of the first releases name no type.
  const type =
    rest["type"] ?? (Array.isArray(merges) ? "BPE" : Array.isArray(vocab) ? "Unigram" : "WordPiece");
  if (type !== "BPE" && type !== "WordPiece" && type !== "Unigram") {
    throw new Error(`"model.type" must be one of BPE, WordPiece, Unigram, got ${describeValue(type)}`);
  }
  if (typeof vocab !== "object" || vocab === null || Array.isArray(vocab) !== (type === "Unigram")) {
    const rule = type === "Unigram" ? "a list" : "an object";
    throw new Error(`"model.vocab" must be ${rule}, got ${describeValue(vocab)}`);
  }
  if (type === "BPE" && !Array.isArray(merges)) {
    throw new Error(`"model.merges" must be a list, got ${describeValue(merges)}`);
  }
  if (!Array.isArray(vocab)) {
    for (const [token, id] of Object.entries(vocab)) checkId(`"model.vocab"`, token, id);
  }
  return { ...model, type };
}

/** Older folders list some added tokens only in tokenizer_config.json. */
function addedTokens(json: Record<string, unknown>, settings: Readonly<Record<string, unknown>>): object[] {
  const listed = json["added_tokens"] ?? [];
  if (!Array.isArray(listed)) throw new Error(`"added_tokens" must be a list, got ${describeValue(listed)}`);
  const ids = new Set(listed.map((token: { id?: unknown } | null) => token?.id));
  const more = Object.entries(settings["added_tokens_decoder"] ?? {})
    .map(([id, token]) => ({ ...(token as object), id: Number(id) }))
    .filter((token) => !ids.has(token.id));
  const all = [...listed, ...more] as ({ content?: unknown; id?: unknown } | null)[];
  return all.map((token) => {
    if (typeof token?.content !== "string") {
      throw new Error(`an added token must have its text under "content", got ${describeValue(token)}`);
    }
    checkId("an added token", token.content, token.id);
    return token;
  });
}

/** Far above any real vocabulary: one absurd id must not cost the memory of a table up to it. */
const LARGEST_ID = 2 ** 24;

function checkId(place: string, token: string, id: unknown): void {
  if (Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) <= LARGEST_ID) return;
  throw new Error(
    `${place} must have ids that are integers from 0 to ${LARGEST_ID}, ` +
      `got ${describeValue(id)} for ${describeValue(token)}`,
  );
}
