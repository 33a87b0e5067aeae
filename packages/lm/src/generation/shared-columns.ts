import { tensor, type Device, type SharedColumns } from "@astra-rl/torch";
import type { SessionRow } from "./session-row.js";

/**
 * The columns that rows inherited from common ancestors, in decodeAttention's format: each ancestor's columns are
 * listed once for all its descendants among these rows. Null if no two rows share any.
 *
 * @param rows in the order of the cache's rows
 */
export function sharedColumns(rows: readonly SessionRow[], device: Device): SharedColumns | null {
  const order: number[] = [];
  const pieces: number[][] = [];
  let isShared = false;

  /** Adds the pieces of rows (given by slot) that share their first `from` columns and `level` ancestors. */
  const add = (slots: readonly number[], level: number, from: number): void => {
    const families = new Map<object, number[]>();
    for (const slot of slots) {
      const ancestor = rows[slot]!.ancestors[level]?.row ?? {};
      families.set(ancestor, [...(families.get(ancestor) ?? []), slot]);
    }
    for (const family of families.values()) {
      const [first] = family as [number];
      const to = Math.min(...family.map((slot) => rows[slot]!.ancestors[level]?.columns ?? 0));
      if (family.length === 1) {
        pieces.push([first, from, -1, order.length, 1]);
        order.push(first);
      } else if (to > from) {
        isShared = true;
        pieces.push([first, from, to, order.length, family.length]);
        add(family, level + 1, to);
      } else {
        add(family, level + 1, from);
      }
    }
  };
  add([...rows.keys()], 0, 0);
  if (!isShared) return null;
  const integers = (values: number[], shape: number[]) =>
    tensor(Int32Array.from(values), { dtype: "int32", shape, device });
  return { order: integers(order, [order.length]), pieces: integers(pieces.flat(), [pieces.length, 5]) };
}
