import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { percent, plain } from "./figures.js";
import type { Values } from "./series.js";

export interface ChartSeries {
  name: string;
  /** A custom property of the style sheet. */
  color: string;
  values: Values;
  /** Drawn as background: thin and pale. */
  pale?: boolean;
  /** Known at some steps only: points, joined. */
  sparse?: boolean;
  /** An area around the line. */
  band?: { name: string; lower: Values; upper: Values };
}

export interface ChartProps {
  title: string;
  steps: number[];
  series: ChartSeries[];
  isShare?: boolean;
}

/** Curves over training steps, with the values under the pointer and all of them as a table. */
export function Chart({ title, steps, series, isShare = false }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const [dark, setDark] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
  const format = isShare ? percent : (value: number | null) => plain(value, 3);

  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const change = () => setDark(query.matches);
    query.addEventListener("change", change);
    return () => query.removeEventListener("change", change);
  }, []);

  useEffect(() => {
    const element = place.current!;
    const { options, data } = plot(steps, series, isShare, format);
    const chart = new uPlot({ ...options, width: element.clientWidth, height: 220 }, data, element);
    const watch = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: 220 }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      chart.destroy();
    };
  }, [dark, steps, series, isShare]);

  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <div
        ref={place}
        role="img"
        aria-label={`${title} over ${steps.length} training steps; the numbers stand in the table below`}
      />
      <Numbers title={title} steps={steps} series={series} format={format} />
    </figure>
  );
}

type Format = (value: number | null) => string;

function plot(steps: number[], series: readonly ChartSeries[], isShare: boolean, format: Format) {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const data: Values[] = [];
  const lines: uPlot.Series[] = [{ label: "step" }];
  const bands: uPlot.Band[] = [];
  const add = (values: Values, line: uPlot.Series) => {
    data.push(values);
    return lines.push(line) - 1;
  };
  for (const { name, color: property, values, pale = false, sparse = false, band } of series) {
    const stroke = color(property);
    if (band !== undefined) {
      const edge = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
      const label = (which: string) => ({ label: `${name}, ${which}`, class: "edge" });
      const upper = add(band.upper, { ...edge, ...label("upper") });
      const lower = add(band.lower, { ...edge, ...label("lower") });
      bands.push({ series: [upper, lower], fill: `color-mix(in srgb, ${stroke} 18%, transparent)` });
    }
    add(values, {
      label: name,
      ...(pale ? { class: "edge" } : {}),
      stroke: pale ? `color-mix(in srgb, ${stroke} 35%, transparent)` : stroke,
      width: pale ? 1 : 2,
      spanGaps: sparse,
      points: { show: sparse, size: 7, fill: stroke },
      value: (_, value) => format(value ?? null),
    });
  }
  const axis = {
    stroke: color("--muted"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1, size: 4 },
    font: "12px system-ui, sans-serif",
  };
  const options: Omit<uPlot.Options, "width" | "height"> = {
    series: lines,
    bands,
    scales: { x: { time: false }, ...(isShare ? { y: { range: [0, 1] } } : {}) },
    axes: [
      {
        ...axis,
        size: 32,
        incrs: [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10_000, 100_000],
      },
      {
        ...axis,
        size: 52,
        values: (_, ticks) => ticks.map((tick) => (isShare ? `${Math.round(100 * tick)} %` : String(tick))),
      },
    ],
    cursor: { drag: { x: true, y: false }, points: { size: 6 } },
    legend: { live: true },
  };
  return { options, data: [steps, ...data] as uPlot.AlignedData };
}

function Numbers({ title, steps, series, format }: Omit<ChartProps, "isShare"> & { format: Format }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        Numbers<span class="visually-hidden"> of {title}</span>
      </summary>
      {open && (
        <div class="scroll numbers" tabIndex={0} role="region" aria-label={`Numbers of ${title}`}>
          <table>
            <thead>
              <tr>
                <th scope="col">step</th>
                {series.map(({ name }) => (
                  <th scope="col">{name}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {steps.map((step, index) => (
                <tr>
                  <th scope="row">{step}</th>
                  {series.map(({ values }) => (
                    <td>{format(values[index]!)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}
