import { useMemo } from "preact/hooks";
import type { ReportRun } from "astra-rl/records";
import { Chart, type ChartSeries } from "./chart.js";
import { halfWindow, hasValues, runningMean, valuesOf, type Values } from "./series.js";
import { shown } from "./shown.js";

interface Curve {
  title: string;
  isShare?: boolean;
  /** Keys of metrics.jsonl with a name and a color; those that a run does not have are left out. */
  keys: { key: string; name: string; color: string; sparse?: boolean; lower?: string; upper?: string }[];
}

const CURVES: readonly Curve[] = [
  {
    title: "Reward of a turn",
    keys: [
      { key: "reward/mean", name: "mean", color: "--blue" },
      { key: "evaluation/reward", name: "on dev prompts", color: "--orange", sparse: true },
    ],
  },
  {
    title: "Success",
    isShare: true,
    keys: [
      { key: "success/rate", name: "training trees", color: "--blue" },
      {
        key: "evaluation/success_rate",
        name: "on dev prompts",
        color: "--orange",
        sparse: true,
        lower: "evaluation/success_lower",
        upper: "evaluation/success_upper",
      },
    ],
  },
  {
    title: "Success with harmless probes only",
    isShare: true,
    keys: [
      { key: "success/harmless_probe_rate", name: "training trees", color: "--blue" },
      {
        key: "evaluation/harmless_probe_success_rate",
        name: "on dev prompts",
        color: "--orange",
        sparse: true,
        lower: "evaluation/harmless_probe_success_lower",
        upper: "evaluation/harmless_probe_success_upper",
      },
    ],
  },
  {
    title: "Harmful texts",
    isShare: true,
    keys: [
      { key: "harm/probe_rate", name: "probes", color: "--purple" },
      { key: "harm/response_rate", name: "responses", color: "--red" },
    ],
  },
  {
    title: "Probe NLL, nats a token",
    keys: [
      { key: "reward/term/nll", name: "training trees", color: "--blue" },
      { key: "evaluation/probe_nll", name: "on dev prompts", color: "--orange", sparse: true },
    ],
  },
  {
    title: "Distinct probes of a step",
    keys: [{ key: "probes/distinct", name: "distinct", color: "--blue" }],
  },
  { title: "Loss", keys: [{ key: "loss", name: "loss", color: "--blue" }] },
];

/** The course of a run. */
export function Curves({ run: { metrics, label }, title }: { run: ReportRun; title: string }) {
  const steps = useMemo(() => metrics.map(({ step }) => step), [metrics]);
  const half = halfWindow(steps.length);
  const charts = useMemo(
    () =>
      CURVES.map((curve) => ({
        ...curve,
        series: curve.keys.flatMap((entry): ChartSeries[] => {
          const values = valuesOf(metrics, entry.key);
          return hasValues(values) ? seriesOf(entry, values, metrics, half) : [];
        }),
      })).filter(({ series }) => series.length > 0),
    [metrics],
  );
  return (
    <section aria-label={`${title} ${shown(label)}`}>
      <h2>{title}</h2>
      <p class="note">
        {half > 0
          ? `Strong lines are means over ${2 * half + 1} steps, pale ones single steps; areas are 95 % intervals.`
          : "Areas are 95 % intervals."}
      </p>
      <div class="charts">
        {charts.map(({ title: name, series, isShare = false }) => (
          <Chart key={name} title={name} steps={steps} series={series} isShare={isShare} />
        ))}
      </div>
    </section>
  );
}

function seriesOf(
  { name, color, sparse = false, lower, upper }: Curve["keys"][number],
  values: Values,
  metrics: ReportRun["metrics"],
  half: number,
): ChartSeries[] {
  const band =
    lower === undefined || upper === undefined
      ? {}
      : { band: { name: "95 %", lower: valuesOf(metrics, lower), upper: valuesOf(metrics, upper) } };
  if (sparse) return [{ name, color, values, sparse, ...band }];
  if (half === 0) return [{ name, color, values, ...band }];
  return [
    { name: `${name}, step by step`, color, values, pale: true },
    { name, color, values: runningMean(values, half) },
  ];
}
