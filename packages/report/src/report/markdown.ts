import { visible } from "./visible.js";

const escaped = (text: string): string => text.replace(/[\\`*_{}[\]<>#|&~]/gu, (mark) => `\\${mark}`);

/** A text on one line of Markdown, without markup of its own. */
export const markdownText = (text: string): string => escaped(visible(text));

/**
 * A table in Markdown.
 *
 * @param heading visible texts, as cells are
 * @param alignment of all columns but the first, such as "--:"
 */
export function markdownTable(
  heading: readonly string[],
  rows: readonly (readonly string[])[],
  alignment = "---",
): string[] {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  const shown = (cells: readonly string[]) => line(cells.map((cell) => escaped(cell.trim())));
  return [shown(heading), line(heading.map((_, at) => (at === 0 ? "---" : alignment))), ...rows.map(shown)];
}
