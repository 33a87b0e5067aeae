export interface Row {
  what: string;
  /** The figure that was found, with the bound that it must keep. */
  found: string;
  /** null: a figure without a bound. */
  holds: boolean | null;
}

/** A figure that must not pass a bound; NaN never holds. */
export const within = (what: string, found: number, bound: number): Row => ({
  what,
  found:
    bound === 0 ? `${found} (must be 0)` : `${found.toExponential(1)} (at most ${bound.toExponential(0)})`,
  holds: found <= bound,
});

export const figure = (what: string, found: string): Row => ({ what, found, holds: null });

/** A check that throws is a row that does not hold; the others go on. */
export async function guarded(what: string, check: () => Row[] | Promise<Row[]>): Promise<Row[]> {
  try {
    return await check();
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return [{ what, found: message.split("\n")[0]!.slice(0, 200), holds: false }];
  }
}

/** As guarded, and says at once what was found: a part may take minutes. */
export async function announced(what: string, check: () => Row[] | Promise<Row[]>): Promise<Row[]> {
  const rows = await guarded(what, check);
  for (const { what: row, found, holds } of rows) {
    console.error(`check-cuda: ${row}: ${found}${holds === false ? ", WRONG" : ""}`);
  }
  return rows;
}

/** A table in Markdown. */
export function table(rows: readonly Row[]): string {
  const cells = rows.map(({ what, found, holds }) => [
    what,
    found,
    holds === null ? "" : holds ? "yes" : "NO",
  ]);
  const all = [["check", "found", "holds"], ...cells];
  const widths = [0, 1, 2].map((column) => Math.max(5, ...all.map((row) => row[column]!.length)));
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, at) => cell.padEnd(widths[at]!)).join(" | ")} |`;
  return [line(all[0]!), line(widths.map((width) => "-".repeat(width))), ...all.slice(1).map(line)].join(
    "\n",
  );
}
