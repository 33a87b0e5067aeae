import { describeValue, UsageError } from "@astra-rl/base";
import { byteTokens } from "./byte-tokens.js";
import type { Model, Vocabulary } from "./model.js";
import type { Part } from "./part.js";

/** Maximum length and maximum number of cached pieces. */
const REMEMBERED_LENGTH = 256;
const REMEMBERED = 10_000;

/** Byte-pair encoding: merges the adjacent pair with the lowest rank first, the leftmost in a tie. */
export function readBpe(part: Part, { idOf, tokenOf }: Vocabulary): Model {
  const dropout = part.values["dropout"];
  if (part.has("dropout") && dropout !== 0) {
    throw part.refuse("random-ids", "dropout", "it makes the ids of a text random", 'set "dropout" to null');
  }
  const unknownToken = part.string("unk_token", { fallback: null });
  const unknown = unknownToken === null ? undefined : idOf.get(unknownToken);
  if (unknownToken !== null && unknown === undefined) {
    throw part.refuse(
      "not-in-vocabulary",
      "unk_token",
      "the vocabulary lacks it, so Python fails at the first unknown character",
    );
  }
  const prefix = part.string("continuing_subword_prefix", { fallback: "" });
  const suffix = part.string("end_of_word_suffix", { fallback: "" });
  const fuseUnknown = part.boolean("fuse_unk", { fallback: false });
  const bytesOf = part.boolean("byte_fallback", { fallback: false }) ? byteTokens(idOf) : null;
  const ignoreMerges = part.boolean("ignore_merges", { fallback: false });
  const merges = readMerges(part, idOf, prefix);

  /** Ids of the characters of a piece, before any merge. */
  const symbols = (text: string): number[] => {
    const ids: number[] = [];
    let pending = false; // an unknown token not yet appended, so that the next one can be fused with it
    for (let start = 0; start < text.length;) {
      const end = start + ((text.codePointAt(start) as number) > 0xffff ? 2 : 1);
      const char = (start > 0 ? prefix : "") + text.slice(start, end) + (end === text.length ? suffix : "");
      start = end;
      const id = idOf.get(char);
      if (id !== undefined) {
        if (pending) ids.push(unknown!);
        pending = false;
        ids.push(id);
        continue;
      }
      const bytes = bytesOf?.(char) ?? null;
      if (bytes !== null) {
        ids.push(...bytes); // before a pending unknown token, as in Python
      } else if (unknown !== undefined) {
        if (pending && !fuseUnknown) ids.push(unknown);
        pending = true;
      }
    }
    if (pending) ids.push(unknown!);
    return ids;
  };

  const remembered = new Map<string, readonly number[]>();
  const encode = (text: string, ids: number[]) => {
    if (ignoreMerges) {
      const whole = idOf.get(text);
      if (whole !== undefined) {
        ids.push(whole);
        return;
      }
    }
    let merged = remembered.get(text);
    if (merged === undefined) {
      merged = mergeAll(symbols(text), merges);
      if (text.length < REMEMBERED_LENGTH) {
        if (remembered.size >= REMEMBERED) remembered.clear();
        remembered.set(text, merged);
      }
    }
    for (const id of merged) ids.push(id);
  };
  return { type: "BPE", idOf, tokenOf, encode };
}

interface Merge {
  rank: number;
  id: number;
}

/** Merges by pair of ids, encoded as one number. */
type Merges = ReadonlyMap<number, Merge>;

/** Ids are below 2^24, so that a pair of them is exact as a double. */
const PAIR = 2 ** 25;

function readMerges(part: Part, idOf: ReadonlyMap<string, number>, prefix: string): Merges {
  const merges = new Map<number, Merge>();
  for (const [rank, line] of part.list("merges").entries()) {
    const pair: unknown = typeof line === "string" ? line.split(" ") : line;
    const where = `${part.where}."merges"[${rank}]`;
    if (!Array.isArray(pair) || pair.length !== 2 || !pair.every((token) => typeof token === "string")) {
      throw new UsageError(
        "malformed-merge",
        `${where} must be two tokens ("a b" or ["a", "b"]), got ${describeValue(line)}; ` +
          `the file is damaged: download it again`,
      );
    }
    const [left, right] = pair as [string, string];
    if (prefix !== "" && !right.startsWith(prefix)) {
      throw new UsageError(
        "merge-without-prefix",
        `${where}: the second token must begin with "continuing_subword_prefix" ${describeValue(prefix)}, ` +
          `got ${describeValue(right)}; Python would split it within the token`,
      );
    }
    const id = (token: string): number => {
      const found = idOf.get(token);
      if (found !== undefined) return found;
      throw new UsageError(
        "not-in-vocabulary",
        `${where}: the vocabulary lacks ${describeValue(token)}; the file is damaged: download it again`,
      );
    };
    merges.set(id(left) * PAIR + id(right), { rank, id: id(left + right.slice(prefix.length)) });
  }
  return merges;
}

/** Above any piece's number of characters; a rank times this is exact as a double. */
const POSITIONS = 2 ** 27;

/** Marks removed tokens; no pair with it has a merge. */
const REMOVED = -1;

/** Keeps the tokens of a piece as a linked list, and the possible merges in a heap. */
function mergeAll(ids: number[], merges: Merges): readonly number[] {
  const next = ids.map((_, index) => index + 1);
  const previous = ids.map((_, index) => index - 1);
  const mergeAt = (position: number) => merges.get(ids[position]! * PAIR + (ids[next[position]!] ?? REMOVED));
  // Each candidate is rank · POSITIONS + position: the lowest rank first, then the leftmost.
  const candidates: number[] = [];
  const offer = (position: number) => {
    const merge = mergeAt(position);
    if (merge !== undefined) pushHeap(candidates, merge.rank * POSITIONS + position);
  };
  for (let index = 0; index < ids.length; index++) offer(index);
  while (candidates.length > 0) {
    const candidate = popHeap(candidates);
    const position = candidate % POSITIONS;
    // A neighbour may have changed since: compare with the current merge of the pair.
    const merge = mergeAt(position);
    if (merge?.rank !== Math.floor(candidate / POSITIONS)) continue;
    const after = next[position]!;
    ids[position] = merge.id;
    ids[after] = REMOVED;
    next[position] = next[after]!;
    previous[next[after]!] = position;
    if (previous[position]! >= 0) offer(previous[position]!);
    offer(position);
  }
  return ids.filter((id) => id !== REMOVED);
}

/** Adds a value to a binary min-heap. */
function pushHeap(heap: number[], value: number): void {
  let index = heap.push(value) - 1;
  while (index > 0) {
    const parent = (index - 1) >> 1;
    if (heap[parent]! <= value) break;
    heap[index] = heap[parent]!;
    index = parent;
  }
  heap[index] = value;
}

/** Removes the smallest value of a non-empty heap. */
function popHeap(heap: number[]): number {
  const least = heap[0]!;
  const value = heap.pop()!;
  let index = 0;
  for (let child = 1; child < heap.length; child = 2 * index + 1) {
    if (heap[child + 1]! < heap[child]!) child++;
    if (heap[child]! >= value) break;
    heap[index] = heap[child]!;
    index = child;
  }
  if (heap.length > 0) heap[index] = value;
  return least;
}
