import { CATEGORIES, CATEGORY_RUNS, SETS } from "./unicode-tables.js";

/** Sorted, disjoint, non-adjacent ranges [first, last], both inclusive. */
export type Ranges = readonly (readonly [first: number, last: number])[];

const LAST = 0x10ffff;

/** A set of code points, for fast lookup. */
export class CodePointSet {
  readonly #has = new Uint8Array(LAST + 1);

  constructor(ranges: Ranges) {
    for (const [first, last] of ranges) this.#has.fill(1, first, last + 1);
  }

  has(point: number): boolean {
    return this.#has[point] === 1;
  }
}

export function union(...all: readonly Ranges[]): Ranges {
  const joined: [number, number][] = [];
  for (const [first, last] of all.flat().sort(([one], [other]) => one - other)) {
    const before = joined.at(-1);
    if (before !== undefined && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else joined.push([first, last]);
  }
  return joined;
}

export function complement(ranges: Ranges): Ranges {
  const starts = [0, ...ranges.map(([, last]) => last + 1)];
  const ends = [...ranges.map(([first]) => first - 1), LAST];
  return starts.map((start, index) => [start, ends[index]!] as const).filter(([start, end]) => start <= end);
}

export function intersection(one: Ranges, other: Ranges): Ranges {
  return complement(union(complement(one), complement(other)));
}

/** Ranges encoded as (gap to the last end, length − 1) in base 36. */
function unpack(packed: string): Ranges {
  let next = 0;
  return (packed.match(/\w+ \w+/g) ?? []).map((pair) => {
    const [gap, more] = pair.split(" ").map((word) => Number.parseInt(word, 36)) as [number, number];
    const first = next + gap;
    next = first + more + 1;
    return [first, next - 1];
  });
}

let categories: Map<string, Ranges> | undefined;

/** Code points of a general category ("Lu") or a group of them ("L"); undefined if there is none of that name. */
export function category(name: string): Ranges | undefined {
  if (categories === undefined) {
    const lists = new Map<string, [number, number][]>(CATEGORIES.map((known) => [known, []]));
    let next = 0;
    for (const word of CATEGORY_RUNS.split(" ")) {
      const list = lists.get(CATEGORIES[Number.parseInt(word[0]!, 36)]!)!;
      const length = Number.parseInt(word.slice(1), 36);
      list.push([next, next + length - 1]);
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

/** Code points of a script, such as "Latin"; undefined if it is unknown. The names of other sets are in lower case. */
export function scriptOf(name: string): Ranges | undefined {
  const isScript = /^[A-Z]/.test(name) && Object.hasOwn(SETS, name);
  return isScript ? rangesOf(name as keyof typeof SETS) : undefined;
}

const sets = new Map<string, CodePointSet>();

export function setOf(name: keyof typeof SETS): CodePointSet {
  let set = sets.get(name);
  if (set === undefined) sets.set(name, (set = new CodePointSet(rangesOf(name))));
  return set;
}
