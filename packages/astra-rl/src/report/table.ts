/** Rows as lines with aligned columns, the first to the left and the others to the right; a rule below the heading. */
export function table(heading: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const all = [heading, ...rows];
  const widths = heading.map((_, column) =>
    Math.max(...all.map((row) => Array.from(row[column] ?? "").length)),
  );
  const line = (row: readonly string[]) =>
    widths
      .map((width, column) => {
        const cell = row[column] ?? "";
        const space = " ".repeat(width - Array.from(cell).length);
        return column === 0 ? cell + space : space + cell;
      })
      .join("   ")
      .trimEnd();
  return [line(heading), widths.map((width) => "─".repeat(width)).join("───"), ...rows.map(line)];
}
