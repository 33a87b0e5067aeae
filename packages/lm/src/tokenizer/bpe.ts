import { describeValue, UsageError } from "@astra-rl/torch";
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
    throw part.refuse("dropout", "it makes the ids of a text random", 'set "dropout" to null');
  }
  const unknownToken = part.string("unk_token", { fallback: null });
  const unknown = unknownToken === null ? undefined : idOf.get(unknownToken);
  if (unknownToken !== null && unknown === undefined) {
    throw part.refuse("unk_token", "the vocabulary lacks it, so Python fails at the first unknown character");
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
        `${where} must be two tokens ("a b" or ["a", "b"]), got ${describeValue(line)}; ` +
          `the file is damaged: fetch it once more`,
      );
    }
    const [left, right] = pair as [string, string];
    if (prefix !== "" && !right.startsWith(prefix)) {
      throw new UsageError(
        `${where}: the second token must begin with "continuing_subword_prefix" ${describeValue(prefix)}, ` +
          `got ${describeValue(right)}; Python would cut it in the middle`,
      );
    }
    const id = (token: string): number => {
      const found = idOf.get(token);
      if (found !== undefined) return found;
      throw new UsageError(
        `${where}: the vocabulary lacks ${describeValue(token)}; the file is damaged: fetch it once more`,
      );
    };
    merges.set(id(left) * PAIR + id(right), { rank, id: id(left + right.slice(prefix.length)) });
  }
  return merges;
}

/** Keeps the tokens of a piece as a linked list and the possible merges in a heap. */
function mergeAll(symbols: number[], merges: Merges): readonly number[] {
  const length = symbols.length;
  if (length < 2) return symbols;
  return length <= 24 ? mergeShort(symbols, merges) : mergeLong(symbols, merges);
}

/** Scans all pairs for each merge: the fastest method for words. */
function mergeShort(symbols: number[], merges: Merges): readonly number[] {
  const ranks: number[] = [];
  const targets: number[] = [];
  const look = (index: number) => {
    const merge = merges.get(symbols[index]! * PAIR + symbols[index + 1]!);
    ranks[index] = merge?.rank ?? Infinity;
    targets[index] = merge?.id ?? -1;
  };
  for (let index = 0; index + 1 < symbols.length; index++) look(index);
  for (;;) {
    let [best, lowest] = [-1, Infinity];
    for (let index = 0; index + 1 < symbols.length; index++) {
      if (ranks[index]! < lowest) [best, lowest] = [index, ranks[index]!];
    }
    if (best < 0) return symbols;
    symbols[best] = targets[best]!;
    symbols.splice(best + 1, 1);
    ranks.splice(best, 1);
    targets.splice(best, 1);
    if (best > 0) look(best - 1);
    if (best + 1 < symbols.length) look(best);
  }
}

function mergeLong(symbols: number[], merges: Merges): readonly number[] {
  const length = symbols.length;
  const ids = Int32Array.from(symbols);
  const next = Int32Array.from({ length }, (_, index) => (index + 1 < length ? index + 1 : -1));
  const previous = Int32Array.from({ length }, (_, index) => index - 1);
  const alive = new Uint8Array(length).fill(1);
  // A binary heap of (rank, position, pair, id), lowest rank first, then leftmost.
  const ranks: number[] = [];
  const positions: number[] = [];
  const targets: number[] = [];
  const less = (one: number, other: number) => {
    const difference = ranks[one]! - ranks[other]!;
    return difference < 0 || (difference === 0 && positions[one]! < positions[other]!);
  };
  const swap = (one: number, other: number) => {
    for (const list of [ranks, positions, targets]) [list[one], list[other]] = [list[other]!, list[one]!];
  };
  const push = (position: number) => {
    const after = next[position]!;
    if (after < 0) return;
    const merge = merges.get(ids[position]! * PAIR + ids[after]!);
    if (merge === undefined) return;
    let index = ranks.push(merge.rank) - 1;
    positions.push(position);
    targets.push(merge.id);
    while (index > 0 && less(index, (index - 1) >> 1)) {
      swap(index, (index - 1) >> 1);
      index = (index - 1) >> 1;
    }
  };
  const pop = () => {
    swap(0, ranks.length - 1);
    ranks.pop();
    positions.pop();
    targets.pop();
    for (let index = 0; ;) {
      let least = index;
      for (const child of [2 * index + 1, 2 * index + 2]) {
        if (child < ranks.length && less(child, least)) least = child;
      }
      if (least === index) return;
      swap(index, least);
      index = least;
    }
  };
  for (let index = 0; index < length; index++) push(index);
  while (ranks.length > 0) {
    const [position, target] = [positions[0]!, targets[0]!];
    pop();
    if (alive[position] === 0) continue;
    const after = next[position]!;
    if (after < 0) continue;
    // A neighbour may have changed since: compare with what the pair merges to now.
    if (merges.get(ids[position]! * PAIR + ids[after]!)?.id !== target) continue;
    ids[position] = target;
    alive[after] = 0;
    next[position] = next[after]!;
    if (next[after]! >= 0) previous[next[after]!] = position;
    if (previous[position]! >= 0) push(previous[position]!);
    push(position);
  }
  const merged: number[] = [];
  for (let index = 0; index >= 0; index = next[index]!) merged.push(ids[index]!);
  return merged;
}
