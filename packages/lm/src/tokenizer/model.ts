import { describeValue, UsageError } from "@astra-rl/base";
import { isText } from "../json-fields.js";
import { readBpe } from "./bpe.js";
import type { Part } from "./part.js";
import { Trie } from "./trie.js";
import { readUnigram } from "./unigram.js";

/** Encodes pieces of text as token ids. */
export interface Model {
  readonly type: "BPE" | "WordPiece" | "WordLevel" | "Unigram";
  readonly idOf: ReadonlyMap<string, number>;
  readonly tokenOf: ReadonlyMap<number, string>;
  /** Appends the ids of a piece. Throws UsageError if Python cannot encode it either. */
  encode(text: string, ids: number[]): void;
}

/** Far above any real vocabulary: a single absurd id must not allocate a huge table. */
export const LARGEST_ID = 2 ** 24;

/** Longer than any token of a real vocabulary. Bounds the lookahead at each position of a text. */
export const LONGEST_TOKEN = 1024;

/** Creates the model described by a tokenizer.json. Throws UsageError for one not known to match Python's. */
export function readModel(part: Part): Model {
  // Files of the first releases have no "type".
  const { vocab, merges } = part.values;
  const type = part.has("type")
    ? part.type
    : Array.isArray(merges)
      ? "BPE"
      : Array.isArray(vocab)
        ? "Unigram"
        : "WordPiece";
  switch (type) {
    case "BPE":
      return readBpe(part, readVocabulary(part));
    case "Unigram":
      return readUnigram(part);
    case "WordPiece":
      return readWordPiece(part, readVocabulary(part));
    case "WordLevel":
      return readWordLevel(part, readVocabulary(part));
    default:
      throw part.error("unsupported-type", "type", "one of BPE, WordPiece, WordLevel, Unigram");
  }
}

export interface Vocabulary {
  idOf: Map<string, number>;
  tokenOf: Map<number, string>;
}

/** {token: id, …}. */
function readVocabulary(part: Part): Vocabulary {
  const given = part.nested("vocab");
  if (given === null) throw part.error("invalid-type", "vocab", "an object");
  const idOf = new Map<string, number>();
  const tokenOf = new Map<number, string>();
  for (const [token, id] of Object.entries(given.values)) {
    checkId(given.where, token, id);
    if (!isText(token))
      throw new UsageError(
        "lone-surrogate",
        `${given.where}: ${describeValue(token)} holds half a character`,
      );
    const other = tokenOf.get(id);
    if (other !== undefined) {
      throw new UsageError(
        "duplicate-token-id",
        `${given.where}: each id must belong to one token, but ${describeValue(other)} and ` +
          `${describeValue(token)} both have ${id}; Python decodes such an id at random`,
      );
    }
    idOf.set(token, id);
    tokenOf.set(id, token);
  }
  return { idOf, tokenOf };
}

export function checkId(place: string, token: string, id: unknown): asserts id is number {
  if (Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) <= LARGEST_ID) return;
  throw new UsageError(
    "invalid-token-id",
    `${place} must have ids that are integers from 0 to ${LARGEST_ID}, ` +
      `got ${describeValue(id)} for ${describeValue(token)}`,
  );
}

/** The id of the unknown token, for models that require one. */
function unknownId(part: Part, idOf: ReadonlyMap<string, number>): number {
  const token = part.string("unk_token");
  const id = idOf.get(token);
  if (id !== undefined) return id;
  throw part.refuse(
    "not-in-vocabulary",
    "unk_token",
    "the vocabulary lacks it, so Python fails at the first unknown word",
  );
}

/** WordPiece: greedy longest-prefix matching; words that cannot be composed become the unknown token. */
function readWordPiece(part: Part, { idOf, tokenOf }: Vocabulary): Model {
  const unknown = unknownId(part, idOf);
  const prefix = part.string("continuing_subword_prefix", { fallback: "##" });
  const longestWord = part.integer("max_input_chars_per_word", { minimum: 0, fallback: 100 });
  const spellings = new Trie();
  for (const [token, id] of idOf) {
    if (token.length > LONGEST_TOKEN) {
      throw new UsageError(
        "token-too-long",
        `${part.inside("vocab")} must hold no token of more than ${LONGEST_TOKEN} characters`,
      );
    }
    if (token !== "") spellings.insert(token, id);
  }
  const continuing = spellings.behind(prefix);
  const encode = (text: string, ids: number[]) => {
    const before = ids.length;
    const fail = () => {
      ids.length = before;
      ids.push(unknown);
    };
    if (text.length > longestWord && Array.from(text).length > longestWord) return fail();
    for (let start = 0; start < text.length;) {
      const found = (start === 0 ? spellings : continuing)?.longestAt(text, start);
      if (found === undefined || found.id < 0) return fail();
      ids.push(found.id);
      start = found.end;
    }
  };
  return { type: "WordPiece", idOf, tokenOf, encode };
}

function readWordLevel(part: Part, { idOf, tokenOf }: Vocabulary): Model {
  const unknown = unknownId(part, idOf);
  const encode = (text: string, ids: number[]) => {
    ids.push(idOf.get(text) ?? unknown);
  };
  return { type: "WordLevel", idOf, tokenOf, encode };
}
