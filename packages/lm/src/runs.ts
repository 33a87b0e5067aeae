/** Splits items into runs of adjacent ones: an item that may not join the last run starts a new one. */
export function runsOf<T>(
  items: readonly T[],
  joins: (item: T, run: readonly [T, ...T[]]) => boolean,
): (readonly [T, ...T[]])[] {
  const runs: [T, ...T[]][] = [];
  for (const item of items) {
    const run = runs.at(-1);
    if (run !== undefined && joins(item, run)) run.push(item);
    else runs.push([item]);
  }
  return runs;
}
