// Vocabulary files from before tokenizer.json, read as by the classes of `transformers` 5.
import { describeValue, UsageError } from "@astra-rl/base";
import { parseJsonObject } from "../json-fields.js";
import { CONTROL, readSentencePiece, USER_DEFINED } from "./sentencepiece.js";
import { vocabularyFilesOf, type Json } from "./tokenizer-classes.js";

/** Contents of vocabulary files, in the form of tokenizer.json and tokenizer_config.json. */
export interface ReadVocabulary {
  definition: Json;
  /** Tokens that the vocabulary itself marks as special. */
  specialTokens: readonly Json[];
}

/**
 * Reads the vocabulary of a class from its files, if there is no tokenizer.json.
 *
 * @param read returns the bytes of a file; null if it does not exist
 * @param place start of error messages about a file
 * @returns null if the class has no such files, or one of them is missing
 */
export function readVocabularyFiles(
  className: string,
  read: (name: string) => Uint8Array | null,
  place: (file: string) => string,
): ReadVocabulary | null {
  const names = vocabularyFilesOf(className);
  const files = names.map((name) => read(name)).filter((bytes) => bytes !== null);
  if (names.length === 0 || files.length < names.length) return null;
  const [first, second] = files as [Uint8Array, Uint8Array?];
  const path = place(names[0]!);
  switch (names[0]) {
    case "vocab.txt":
      return {
        definition: { model: { type: "WordPiece", vocab: readTokens(first, path) } },
        specialTokens: [],
      };
    case "vocab.json": {
      const merges = readMerges(second!, place(names[1]!));
      const model = { type: "BPE", vocab: parseJsonObject(first, path), merges };
      return { definition: { model }, specialTokens: [] };
    }
    default:
      return readUnigramModel(first, path);
  }
}

/** One token per line; its line number is its id. Duplicate tokens get the last id. */
function readTokens(bytes: Uint8Array, place: string): Record<string, number> {
  const ids = new Map(linesOf(bytes, place).map((line, id) => [line.trimEnd(), id]));
  return Object.fromEntries(ids);
}

function readMerges(bytes: Uint8Array, place: string): [string, string][] {
  const merges: [string, string][] = [];
  for (const [index, line] of linesOf(bytes, place).entries()) {
    if (line.startsWith("#version")) continue;
    const [first, second, ...rest] = line.split(" ");
    if (second === undefined || rest.length > 0) {
      throw new UsageError(
        "malformed-merge",
        `${place}: line ${index + 1} must be two tokens with a space between them, got ${describeValue(line)}`,
      );
    }
    merges.push([first!, second]);
  }
  return merges;
}

/**
 * XLM-RoBERTa puts fairseq's four special tokens first and the mask token last; the model's own first three are
 * omitted.
 */
function readUnigramModel(bytes: Uint8Array, place: string): ReadVocabulary {
  const { pieces, modelType, precompiledCharsmap } = readSentencePiece(bytes, place);
  if (modelType !== 1) {
    throw new UsageError(
      "unsupported-model-type",
      `${place}: must be a unigram model (type 1), got one of type ${modelType}`,
    );
  }
  const added = (token: string) => [token, 0] as const;
  const vocab = [
    ...["<s>", "<pad>", "</s>", "<unk>"].map(added),
    ...pieces.slice(3).map(({ text, score }) => [text, score] as const),
    added("<mask>"),
  ];
  const normalizer = {
    type: "Precompiled",
    precompiled_charsmap: Buffer.from(precompiledCharsmap).toString("base64"),
  };
  const specialTokens = pieces
    .filter(({ type }) => type === CONTROL || type === USER_DEFINED)
    .map(({ text, type }) => ({ content: text, normalized: false, special: type === CONTROL }));
  return { definition: { model: { type: "Unigram", vocab }, normalizer }, specialTokens };
}

/** Splits lines like Rust: there is no empty last line after a final line break. */
function linesOf(bytes: Uint8Array, place: string): string[] {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new UsageError("not-utf8", `${place}: must be UTF-8, but some of its bytes are not`, { cause });
  }
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
}
