import { describeValue, UsageError } from "@astra-rl/base";
import { isText } from "../json-fields.js";
import { byteTokens } from "./byte-tokens.js";
import { LONGEST_TOKEN, type Model } from "./model.js";
import type { Part } from "./part.js";
import { Trie } from "./trie.js";

/** Score penalty of an unknown character below the least likely token. */
const UNKNOWN_PENALTY = 10;

/** The most likely sequence of tokens; in a tie the one that comes first, as in Python. */
export function readUnigram(part: Part): Model {
  const scores: number[] = [];
  const idOf = new Map<string, number>();
  const tokenOf = new Map<number, string>();
  const root = new Trie();
  for (const [id, entry] of part.list("vocab").entries()) {
    const [token, score] = Array.isArray(entry) && entry.length === 2 ? (entry as unknown[]) : [];
    if (!isText(token) || !Number.isFinite(score)) {
      throw new UsageError(
        "invalid-vocabulary-entry",
        `${part.where}."vocab"[${id}] must be a token and its score, got ${describeValue(entry)}`,
      );
    }
    if (token.length > LONGEST_TOKEN) {
      throw new UsageError(
        "token-too-long",
        `${part.where}."vocab"[${id}] must have ${LONGEST_TOKEN} characters at most`,
      );
    }
    scores.push(score as number);
    tokenOf.set(id, token);
    idOf.set(token, id);
    if (token === "") continue;
    root.insert(token, id, true);
  }
  if (scores.length === 0)
    throw new UsageError("empty-vocabulary", `${part.where}: "vocab" must not be empty`);
  const unknown = part.integer("unk_id", { fallback: null, minimum: 0, maximum: scores.length - 1 });
  const bytesOf = part.boolean("byte_fallback", { fallback: false }) ? byteTokens(idOf) : null;
  let lowest = Infinity;
  for (const score of scores) lowest = Math.min(lowest, score);
  const unknownScore = lowest - UNKNOWN_PENALTY;

  const encode = (text: string, ids: number[]) => {
    const length = text.length;
    const best = new Float64Array(length + 1);
    const from = new Int32Array(length + 1).fill(-1);
    const chosen = new Int32Array(length + 1);
    const offer = (end: number, start: number, id: number, score: number) => {
      const candidate = score + best[start]!;
      if (from[end] !== -1 && !(candidate > best[end]!)) return;
      best[end] = candidate;
      from[end] = start;
      chosen[end] = id;
    };
    for (let start = 0; start < length;) {
      const charEnd = start + ((text.codePointAt(start) as number) > 0xffff ? 2 : 1);
      let single = false;
      let node: Trie | undefined = root;
      for (let end = start; end < length;) {
        node = node.next.get(text.charCodeAt(end++));
        if (node === undefined) break;
        if (node.id < 0) continue;
        offer(end, start, node.id, scores[node.id]!);
        single ||= end === charEnd;
      }
      if (!single) {
        if (unknown === null) {
          throw new UsageError(
            "not-in-vocabulary",
            `Tokenizer.encode: ${describeValue(text.slice(start, charEnd))} is not in the vocabulary, and ` +
              `${part.where} names no "unk_id"`,
          );
        }
        offer(charEnd, start, unknown, unknownScore);
      }
      start = charEnd;
    }
    // Collected from the end; adjacent unknown characters become one token.
    const words: [start: number, end: number][] = [];
    let fusing = false;
    for (let end = length; end > 0; end = from[end]!) {
      const isUnknown = chosen[end] === unknown;
      if (isUnknown && fusing) words.at(-1)![0] = from[end]!;
      else words.push([from[end]!, end]);
      fusing = isUnknown;
    }
    for (const [start, end] of words.reverse()) {
      const word = text.slice(start, end);
      const id = idOf.get(word);
      const bytes = id === undefined ? (bytesOf?.(word) ?? null) : null;
      if (bytes !== null) for (const byte of bytes) ids.push(byte);
      else ids.push(id ?? unknown!);
    }
  };
  return { type: "Unigram", idOf, tokenOf, encode };
}
