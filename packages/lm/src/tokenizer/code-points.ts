import { CATEGORIES, CATEGORY_RUNS, SETS } from "./unicode-tables.js";

/** Sorted, disjoint, non-adjacent ranges: [first, last, first, last, …], both inclusive. */
export type Ranges = readonly number[];

const LAST = 0x10ffff;

/** A bit set of code points, for fast lookup. */
export class CodePointSet {
  readonly #bits = new Uint8Array((LAST + 1) >> 3);

  constructor(readonly ranges: Ranges) {
    for (let index = 0; index < ranges.length; index += 2) {
      const [first, last] = [ranges[index]!, ranges[index + 1]!];
      let point = first;
      for (; point <= last && (point & 7) !== 0; point++) this.#bits[point >> 3]! |= 1 << (point & 7);
      const bytes = (last + 1 - point) >> 3;
      if (bytes > 0) this.#bits.fill(255, point >> 3, (point >> 3) + bytes);
      for (point += Math.max(bytes, 0) * 8; point <= last; point++)
        this.#bits[point >> 3]! |= 1 << (point & 7);
    }
  }

  has(point: number): boolean {
    return ((this.#bits[point >> 3]! >> (point & 7)) & 1) === 1;
  }
}

export function union(...all: readonly Ranges[]): Ranges {
  const pairs: [number, number][] = [];
  for (const ranges of all) {
    for (let index = 0; index < ranges.length; index += 2) pairs.push([ranges[index]!, ranges[index + 1]!]);
  }
  pairs.sort(([one], [other]) => one - other);
  const joined: number[] = [];
  for (const [first, last] of pairs) {
    if (joined.length > 0 && first <= joined.at(-1)! + 1) {
      joined[joined.length - 1] = Math.max(joined.at(-1)!, last);
    } else joined.push(first, last);
  }
  return joined;
}

export function complement(ranges: Ranges): Ranges {
  const rest: number[] = [];
  let next = 0;
  for (let index = 0; index < ranges.length; index += 2) {
    if (ranges[index]! > next) rest.push(next, ranges[index]! - 1);
    next = ranges[index + 1]! + 1;
  }
  if (next <= LAST) rest.push(next, LAST);
  return rest;
}

export function intersection(one: Ranges, other: Ranges): Ranges {
  return complement(union(complement(one), complement(other)));
}

/** Ranges encoded as (gap to the last end, length − 1) in base 36. */
function unpack(packed: string): Ranges {
  const ranges: number[] = [];
  let next = 0;
  const numbers = packed === "" ? [] : packed.split(" ").map((word) => Number.parseInt(word, 36));
  for (let index = 0; index < numbers.length; index += 2) {
    const first = next + numbers[index]!;
    const last = first + numbers[index + 1]!;
    ranges.push(first, last);
    next = last + 1;
  }
  return ranges;
}

let categories: Map<string, Ranges> | undefined;

/** Code points of a general category ("Lu") or a group of them ("L"); undefined if there is none of that name. */
export function category(name: string): Ranges | undefined {
  if (categories === undefined) {
    const lists = new Map<string, number[]>(CATEGORIES.map((known) => [known, []]));
    let next = 0;
    for (const word of CATEGORY_RUNS.split(" ")) {
      const list = lists.get(CATEGORIES[Number.parseInt(word[0]!, 36)]!)!;
      const length = Number.parseInt(word.slice(1), 36);
      list.push(next, next + length - 1);
      next += length;
    }
    categories = lists;
    for (const group of ["L", "M", "N", "P", "S", "Z", "C"]) {
      categories.set(
        group,
        union(...CATEGORIES.filter((known) => known[0] === group).map((c) => lists.get(c)!)),
      );
    }
  }
  return categories.get(name);
}

const rangesOfSets = new Map<string, Ranges>();

/** One of the sets that scripts/make_unicode_tables.py extracted from the Python library. */
export function rangesOf(name: keyof typeof SETS): Ranges {
  let ranges = rangesOfSets.get(name);
  if (ranges === undefined) rangesOfSets.set(name, (ranges = unpack(SETS[name])));
  return ranges;
}

const sets = new Map<string, CodePointSet>();

export function setOf(name: keyof typeof SETS): CodePointSet {
  let set = sets.get(name);
  if (set === undefined) sets.set(name, (set = new CodePointSet(rangesOf(name))));
  return set;
}
