import type { ComponentChildren } from "preact";

export type Cell = ComponentChildren;

export interface TableRow {
  key?: string;
  name: Cell;
  cells: readonly Cell[];
  isChosen?: boolean;
}

/**
 * A table with a heading for each column and each row, which scrolls within its container.
 *
 * @param props.headings of all columns, that of the rows' names first
 * @param props.labels the other columns' headings as text: a narrow window shows each cell under its own label.
 * Default: the table keeps its form
 */
export function Table({
  label,
  headings,
  labels,
  rows,
  kind = "",
}: {
  label: string;
  headings: readonly Cell[];
  labels?: readonly string[];
  rows: readonly TableRow[];
  /** A class of the style sheet. */
  kind?: string;
}) {
  return (
    <div class={`scroll ${kind}`} tabIndex={0} role="region" aria-label={label}>
      <table class={labels === undefined ? "" : "stacked"}>
        <thead>
          <tr>
            {headings.map((heading) => (
              <th scope="col">{heading}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, name, cells, isChosen = false }) => (
            <tr key={key} class={isChosen ? "chosen" : ""}>
              <th scope="row">{name}</th>
              {cells.map((cell, index) => (
                <td data-label={labels?.[index]}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
