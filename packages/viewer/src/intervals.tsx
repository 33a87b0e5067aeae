import type { IntervalRecord, ReportRecord } from "@astra-rl/records";
import { percent } from "./figures.js";
import { knownRates } from "./measures.js";
import { shown } from "./shown.js";

/** A row for each rate of each evaluation: a dot at the rate, a bar over its interval. */
export function Intervals({ report: { evaluations, comparison } }: { report: ReportRecord }) {
  const rates = knownRates(evaluations.map(({ summary }) => summary));
  const drawn = rates.filter(({ key }) => key.endsWith("success_rate"));
  const highest = Math.max(
    ...drawn.flatMap((rate) =>
      evaluations.map(({ summary }) => rate.interval?.(summary)?.upper ?? rate.value(summary) ?? 0),
    ),
  );
  // Hardened models have low rates: the bars zoom in on them.
  const scale = SCALES.find((end) => end >= highest) ?? 1;
  return (
    <div class="intervals" aria-hidden="true">
      {drawn.map((rate) => (
        <div class="interval-group">
          <h3>{rate.label}</h3>
          {evaluations.map(({ label, summary }, index) => {
            const value = rate.value(summary);
            const isAfter = comparison !== null && index === comparison.after;
            return (
              <div class={isAfter ? "interval-row after" : "interval-row"}>
                <span class="interval-label">{shown(label)}</span>
                <span class="interval-track">
                  {value !== null && (
                    <Bar value={value} interval={rate.interval?.(summary) ?? null} scale={scale} />
                  )}
                </span>
                <span class="interval-value">{percent(value)}</span>
              </div>
            );
          })}
        </div>
      ))}
      <div class="interval-row interval-axis">
        <span class="interval-label" />
        <span class="interval-track">
          <span>0</span>
          <span>{50 * scale}</span>
          <span>{100 * scale} %</span>
        </span>
        <span class="interval-value" />
      </div>
    </div>
  );
}

const SCALES = [0.05, 0.1, 0.2, 0.5];

function Bar({
  value,
  interval,
  scale,
}: {
  value: number;
  interval: Pick<IntervalRecord, "lower" | "upper"> | null;
  /** The rate at the right edge. */
  scale: number;
}) {
  const at = (share: number) => `${(100 * share) / scale}%`;
  return (
    <>
      <span class="interval-fill" style={{ width: at(value) }} />
      {interval !== null && (
        <span
          class="interval-bar"
          style={{ left: at(interval.lower), width: at(interval.upper - interval.lower) }}
        />
      )}
      <span class="interval-dot" style={{ left: at(value) }} />
    </>
  );
}

/** An interval in words; nothing if unknown. */
export function Interval({ interval }: { interval: Pick<IntervalRecord, "lower" | "upper"> | null }) {
  return interval === null ? null : (
    <small>
      {percent(interval.lower)} to {percent(interval.upper)}
    </small>
  );
}
