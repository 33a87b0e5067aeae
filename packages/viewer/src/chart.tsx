import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { percent, plain } from "./figures.js";
import { useMedia } from "./media.js";
import type { Values } from "./series.js";
import { Table } from "./table.js";
import { Term } from "./terms.js";

export interface ChartLine {
  name: string;
  /** A custom property of the style sheet. */
  color: string;
  /** Ascending; one for each value. */
  x: readonly number[];
  y: Values;
  /** Pale lines are a background without a name; "points" draws connected points. Default "line". */
  kind?: "line" | "pale" | "points";
  /** Whether its name is only in the readout, not at its end. */
  isMinor?: boolean;
  /** An area around the line. */
  band?: { lower: Values; upper: Values };
}

export interface ChartAxis {
  name: string;
  format: (value: number) => string;
}

export interface ChartProps {
  title: string;
  lines: readonly ChartLine[];
  axis: ChartAxis;
  isShare?: boolean;
}

const HEIGHT = 220;
/** Space for a name at the end of a line. */
const WIDE = 420;
const NAMED = 110;

/** Curves with their names at their ends, the values under the pointer, and all of them as a table. */
export function Chart({ title, lines, axis, isShare = false }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const dark = useMedia("(prefers-color-scheme: dark)");
  const [at, setAt] = useState<number | null>(null);
  const format = isShare ? percent : (value: number | null) => plain(value, 3);
  const data = useMemo(() => align(lines), [lines]);
  const shape = JSON.stringify([
    dark,
    isShare,
    axis.name,
    lines.map(({ name, color, kind, band }) => [name, color, kind, band !== undefined]),
  ]);

  useEffect(() => {
    const element = place.current!;
    const options = plot(lines, axis, isShare, (index) => setAt(index));
    const drawn = new uPlot({ ...options, width: element.clientWidth, height: HEIGHT }, data, element);
    chart.current = drawn;
    const watch = new ResizeObserver(() => drawn.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      drawn.destroy();
    };
  }, [shape]);

  // A live run adds points to the same lines.
  useEffect(() => chart.current?.setData(data), [data]);

  const named = lines.filter(({ kind }) => kind !== "pale");
  const x = at === null ? null : (data[0][at] ?? null);
  return (
    <figure class="chart">
      <figcaption>
        <Term name={title} />
        <span class="readout" aria-hidden="true">
          {named.map((line) => (
            <span key={line.name} class="key">
              <span class="swatch" style={{ background: `var(${line.color})` }} />
              {line.name} <strong>{format(valueAt(line, x))}</strong>
            </span>
          ))}
          {x !== null && (
            <span class="key">
              at {axis.name} {axis.format(x)}
            </span>
          )}
        </span>
      </figcaption>
      <div
        ref={place}
        role="img"
        aria-label={`${title} by ${axis.name}; the numbers are in the table below`}
      />
      <Numbers title={title} lines={named} axis={axis} format={format} />
    </figure>
  );
}

/** The last known value at a position; at the end if none is given. */
function valueAt({ x, y }: ChartLine, place: number | null): number | null {
  let known: number | null = null;
  for (const [index, value] of y.entries()) {
    if (place !== null && x[index]! > place) break;
    known = value ?? known;
  }
  return known;
}

/** All lines over the union of their positions: uPlot needs a single list. */
export function align(lines: readonly ChartLine[]): uPlot.AlignedData {
  const places = [...new Set(lines.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const rowOf = new Map(places.map((place, row) => [place, row]));
  const column = (x: readonly number[], y: Values) => {
    const values: Values = places.map(() => null);
    for (const [index, value] of y.entries()) values[rowOf.get(x[index]!)!] = value;
    return values;
  };
  const columns = lines.flatMap(({ x, y, band }) => [
    ...(band === undefined ? [] : [column(x, band.upper), column(x, band.lower)]),
    column(x, y),
  ]);
  return [places, ...columns] as uPlot.AlignedData;
}

function plot(
  lines: readonly ChartLine[],
  axis: ChartAxis,
  isShare: boolean,
  onCursor: (index: number | null) => void,
): Omit<uPlot.Options, "width" | "height"> {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  const ends: { index: number; name: string; stroke: string }[] = [];
  for (const { name, color: property, kind = "line", isMinor = false, band } of lines) {
    const stroke = color(property);
    if (band !== undefined) {
      const edge = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
      const upper = series.push(edge) - 1;
      const lower = series.push(edge) - 1;
      bands.push({ series: [upper, lower], fill: `color-mix(in srgb, ${stroke} 18%, transparent)` });
    }
    const isPale = kind === "pale";
    const index =
      series.push({
        stroke: isPale ? `color-mix(in srgb, ${stroke} 35%, transparent)` : stroke,
        width: isPale ? 1 : 2,
        // Other lines have different positions.
        spanGaps: true,
        points: { show: kind === "points", size: 7, fill: stroke },
      }) - 1;
    if (!isPale && !isMinor) ends.push({ index, name, stroke });
  }
  const look = {
    stroke: color("--muted"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1, size: 4 },
    font: "12px system-ui, sans-serif",
  };
  return {
    series,
    bands,
    padding: [null, (self) => (self.width >= WIDE ? NAMED : 12), null, null],
    scales: { x: { time: false }, ...(isShare ? { y: { range: [0, 1] } } : {}) },
    axes: [
      {
        ...look,
        size: 32,
        values: (_, ticks) => ticks.map((tick) => axis.format(tick)),
        ...(axis.name === "step"
          ? { incrs: [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10_000, 100_000] }
          : {}),
      },
      {
        ...look,
        size: 52,
        values: (_, ticks) => ticks.map((tick) => (isShare ? `${Math.round(100 * tick)} %` : String(tick))),
      },
    ],
    cursor: { drag: { x: true, y: false }, points: { size: 6 } },
    legend: { show: false },
    hooks: {
      setCursor: [({ cursor }) => onCursor(cursor.idx ?? null)],
      draw: [(self) => nameEnds(self, ends)],
    },
  };
}

/** Writes the name of each line at its last point; overlapping names are moved apart. */
function nameEnds(self: uPlot, ends: readonly { index: number; name: string; stroke: string }[]): void {
  if (self.width < WIDE) return;
  const { ctx, bbox } = self;
  const ratio = devicePixelRatio;
  const known = ends.flatMap(({ index, name, stroke }) => {
    const values = self.data[index]!;
    let last = values.length - 1;
    while (last >= 0 && (values[last] ?? null) === null) last -= 1;
    return last < 0 ? [] : [{ name, stroke, y: self.valToPos(values[last]!, "y", true) }];
  });
  const gap = 14 * ratio;
  known.sort((a, b) => a.y - b.y);
  let above = -Infinity;
  ctx.save();
  ctx.font = `${12 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  for (const { name, stroke, y } of known) {
    above = Math.max(y, above + gap);
    ctx.fillStyle = stroke;
    ctx.fillText(fitting(ctx, name, (NAMED - 10) * ratio), bbox.left + bbox.width + 6 * ratio, above);
  }
  ctx.restore();
}

function fitting(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  if (ctx.measureText(text).width <= width) return text;
  const letters = Array.from(text);
  while (letters.length > 1 && ctx.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

interface NumbersProps extends Pick<ChartProps, "title" | "axis"> {
  lines: readonly ChartLine[];
  format: (value: number | null) => string;
}

function Numbers({ title, lines, axis, format }: NumbersProps) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        Numbers<span class="visually-hidden"> of {title}</span>
      </summary>
      {open && <NumbersTable title={title} lines={lines} axis={axis} format={format} />}
    </details>
  );
}

function NumbersTable({ title, lines, axis, format }: NumbersProps) {
  const [places, ...columns] = align(lines.map(({ name, color, x, y }) => ({ name, color, x, y }))) as [
    number[],
    ...Values[],
  ];
  return (
    <Table
      label={`Numbers of ${title}`}
      kind="numbers"
      headings={[axis.name, ...lines.map(({ name }) => name)]}
      rows={places.map((place, row) => ({
        name: axis.format(place),
        cells: columns.map((column) => format(column[row]!)),
      }))}
    />
  );
}
