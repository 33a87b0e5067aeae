/** Default terminal width. */
const WIDTH = 80;

/**
 * Formats rows with aligned columns, the first left- and the others right-aligned, and a rule below the heading. Gaps
 * between columns shrink if a line would be wider than a terminal.
 */
export function table(heading: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const all = [heading, ...rows];
  const widths = heading.map((_, column) =>
    Math.max(...all.map((row) => Array.from(row[column] ?? "").length)),
  );
  const total = widths.reduce((sum, width) => sum + width, 0);
  const room = Math.floor((WIDTH - total) / Math.max(1, widths.length - 1));
  const gap = Math.max(1, Math.min(3, room));
  const line = (row: readonly string[]) =>
    widths
      .map((width, column) => {
        const cell = row[column] ?? "";
        const space = " ".repeat(width - Array.from(cell).length);
        return column === 0 ? cell + space : space + cell;
      })
      .join(" ".repeat(gap))
      .trimEnd();
  return [line(heading), widths.map((width) => "─".repeat(width)).join("─".repeat(gap)), ...rows.map(line)];
}
