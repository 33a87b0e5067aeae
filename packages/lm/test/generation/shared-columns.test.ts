import { scope } from "@astra-rl/torch";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SessionRow } from "../../src/generation/session-row.js";
import { sharedColumns } from "../../src/generation/shared-columns.js";

function read(rows: readonly SessionRow[]): { order: number[]; pieces: number[][] } | null {
  return scope(() => {
    const shared = sharedColumns(rows, "cpu");
    return shared === null
      ? null
      : { order: shared.order.toArray() as number[], pieces: shared.pieces.toArray() as number[][] };
  });
}

function row(columns: number): SessionRow {
  const made = new SessionRow(Array.from({ length: columns + 5 }, (_, at) => at));
  made.extend(columns);
  return made;
}

/** A child of a row that inherits its columns. */
function childOf(parent: SessionRow): SessionRow {
  const child = parent.child(0);
  child.inherit();
  return child;
}

describe("sharedColumns", () => {
  it("returns null if no rows share an ancestor", () => {
    expect(read([row(8), row(8)])).toBeNull();
    expect(read([childOf(row(8)), childOf(row(8))])).toBeNull();
    const parent = row(8);
    expect(read([parent.child(0), parent.child(1)])).toBeNull();
    // Nothing was prefilled yet.
    const unread = row(0);
    expect(read([childOf(unread), childOf(unread)])).toBeNull();
  });

  it("lists each ancestor's columns once", () => {
    const root = row(10);
    const [left, right] = [childOf(root), childOf(root)];
    left.extend(7);
    right.extend(3);
    const rows = [childOf(left), childOf(right), childOf(left), row(20)];
    expect(read(rows)).toEqual({
      order: [0, 2, 1, 3],
      pieces: [
        [0, 0, 10, 0, 3],
        [0, 10, 17, 0, 2],
        [0, 17, -1, 0, 1],
        [2, 17, -1, 1, 1],
        [1, 10, -1, 2, 1],
        [3, 0, -1, 3, 1],
      ],
    });
  });

  it("omits columns that a row has discarded", () => {
    const parent = row(12);
    const [one, other] = [childOf(parent), childOf(parent)];
    expect(read([one, other])!.pieces[0]).toEqual([0, 0, 12, 0, 2]);
    one.rewind(9);
    expect(read([one, other])!.pieces[0]).toEqual([0, 0, 9, 0, 2]);
    other.rewind(0);
    expect(read([one, other])).toBeNull();
  });

  it("lists every column of every row once after any sequence of operations", () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.tuple(
            fc.nat(),
            fc.constantFrom("fork", "extend", "rewind", "evict"),
            fc.integer({ min: 1, max: 9 }),
          ),
          {
            maxLength: 40,
          },
        ),
        (events) => {
          let rows = [row(6), row(13)];
          for (const [which, event, amount] of events) {
            const chosen = rows[which % rows.length]!;
            if (event === "extend") chosen.extend(Math.min(amount, chosen.pending));
            else if (event === "rewind") chosen.rewind(Math.max(0, chosen.cached - amount));
            else if (event === "evict") chosen.rewind(0);
            else if (rows.length < 12) {
              rows = [...rows.filter((each) => each !== chosen), childOf(chosen), childOf(chosen)];
            }
          }
          const told = read(rows);
          if (told === null) return;
          expect([...told.order].sort((a, b) => a - b)).toEqual(rows.map((_, slot) => slot));
          const reached = rows.map(() => 0);
          for (const [leader, from, to, first, count] of told.pieces as [
            number,
            number,
            number,
            number,
            number,
          ][]) {
            const readers = told.order.slice(first, first + count);
            expect(readers).toContain(leader);
            for (const slot of readers) {
              expect(reached[slot]).toBe(from);
              reached[slot] = to < 0 ? Infinity : to;
              if (count > 1) expect(rows[slot]!.cached).toBeGreaterThanOrEqual(to);
            }
          }
          expect(reached.every((each) => each === Infinity)).toBe(true);
        },
      ),
    );
  });
});
