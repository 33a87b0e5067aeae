import type { EvaluationSummary, ReportRecord } from "@astra-rl/records";
import { percent } from "./figures.js";
import { useNarrow } from "./media.js";
import { shown } from "./shown.js";
import { Term } from "./terms.js";

const HIGH = 260;
const LEFT = 52;
/** Space for names. */
const RIGHT = 175;
const BOTTOM = 34;

/** How success grows with the length of a conversation, with intervals where no rollout had an error. */
export function ByTurn({ report: { evaluations, comparison } }: { report: ReportRecord }) {
  const wide = useNarrow() ? 380 : 640;
  const known = evaluations.filter(({ summary }) => summary.success_by_turn.length > 1);
  if (known.length === 0) return null;
  const turns = Math.max(...known.map(({ summary }) => summary.success_by_turn.length));
  const x = (turn: number) => LEFT + ((wide - LEFT - RIGHT) * turn) / turns;
  const y = (share: number) => 10 + (HIGH - BOTTOM - 10) * (1 - share);
  const names = apart(known.map(({ summary }) => y(summary.success_by_turn.at(-1)!)));
  return (
    <section class="by-turn" aria-labelledby="by-turn-title">
      <h3 id="by-turn-title">
        <Term name="Success up to each turn" />
      </h3>
      <svg
        viewBox={`0 0 ${wide} ${HIGH}`}
        role="img"
        aria-label="Success up to each turn; the table of figures has the numbers"
      >
        {[0, 0.5, 1].map((tick) => (
          <>
            <line class="grid" x1={LEFT} x2={x(turns)} y1={y(tick)} y2={y(tick)} />
            <text class="tick" x={LEFT - 6} y={y(tick) + 4} text-anchor="end">
              {100 * tick} %
            </text>
          </>
        ))}
        {Array.from({ length: turns }, (_, at) => (
          <text class="tick" x={x(at + 1)} y={HIGH - BOTTOM + 18} text-anchor="middle">
            {at === 0 ? "turn 1" : at + 1}
          </text>
        ))}
        {known.map(({ label, summary }, at) => {
          const isAfter = comparison !== null && evaluations[comparison.after]!.summary === summary;
          const shares = [0, ...summary.success_by_turn];
          return (
            <g class={isAfter || known.length === 1 ? "after" : "before"}>
              <path d={`M${shares.map((share, turn) => `${x(turn)},${y(share)}`).join("L")}`} />
              {shares.slice(1).map((share, turn) => (
                <>
                  <Whisker interval={intervalAt(summary, turn)} x={x(turn + 1)} y={y} />
                  <circle cx={x(turn + 1)} cy={y(share)} r={4} />
                </>
              ))}
              <text x={x(shares.length - 1) + 10} y={names[at]! + 4}>
                {percent(shares.at(-1))} {short(shown(label))}
              </text>
            </g>
          );
        })}
      </svg>
    </section>
  );
}

/** Positions of names, moved down if they would overlap. */
function apart(places: readonly number[]): number[] {
  const moved = [...places];
  let above = -Infinity;
  for (const index of [...places.keys()].sort((a, b) => places[a]! - places[b]!)) {
    above = Math.max(places[index]!, above + 15);
    moved[index] = above;
  }
  return moved;
}

const short = (label: string) => (label.length > 12 ? `${label.slice(0, 11)}…` : label);

const intervalAt = ({ success_by_turn_intervals: intervals }: EvaluationSummary, at: number) =>
  intervals?.[at] ?? null;

function Whisker({
  interval,
  x,
  y,
}: {
  interval: { lower: number; upper: number } | null;
  x: number;
  y: (share: number) => number;
}) {
  return interval === null ? null : (
    <line class="whisker" x1={x} x2={x} y1={y(interval.lower)} y2={y(interval.upper)} />
  );
}
