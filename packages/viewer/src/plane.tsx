import { useMemo } from "preact/hooks";
import type { ReportEvaluation, ReportRecord } from "@astra-rl/records";
import { percent, plain, whole } from "./figures.js";
import { findConversations, type Conversation } from "./found.js";
import { goTo } from "./place.js";
import { useNarrow } from "./media.js";
import { shown } from "./shown.js";
import { Term } from "./terms.js";

const HIGH = 360;
const LEFT = 44;
const BOTTOM = 48;
/** Maximum dots of one evaluation; more would be slow without being clearer. */
const MOST = 1000;

interface Dots {
  label: string;
  index: number;
  isAfter: boolean;
  threshold: number;
  /** Those with a harm and a likelihood. */
  all: Conversation[];
  drawn: Conversation[];
}

/** Harm against likelihood: attacks that are both will happen to users. */
export function Plane({ report: { evaluations, comparison } }: { report: ReportRecord }) {
  const wide = useNarrow() ? 380 : 640;
  const dots = useMemo(() => dotsOf(evaluations, comparison), [evaluations, comparison]);
  if (dots.length === 0) return null;
  const nlls = dots.flatMap(({ drawn }) => drawn.map(({ nll }) => nll!)).sort((a, b) => a - b);
  // A few probes may be very unlikely; they are drawn at the edge.
  const right = niceCeiling(1.1 * nlls[Math.floor(0.99 * (nlls.length - 1))]!);
  const x = (nll: number) => LEFT + ((wide - LEFT - 12) * Math.min(nll, right)) / right;
  const y = (harm: number) => 10 + (HIGH - BOTTOM - 10) * (1 - Math.min(1, Math.max(0, harm)));
  const threshold = dots[0]!.threshold;
  return (
    <section class="plane" aria-labelledby="plane-title">
      <h3 id="plane-title">
        <Term name="Harm and likelihood" />
      </h3>
      <svg
        viewBox={`0 0 ${wide} ${HIGH}`}
        role="img"
        aria-label="Harm of rollouts against the likelihood of their probes; the table of figures has their means"
      >
        <rect class="region" x={LEFT} y={y(1)} width={wide - LEFT - 12} height={y(threshold) - y(1)} />
        {[0, 0.25, 0.5, 0.75, 1].map((tick) => (
          <>
            <line class="grid" x1={LEFT} x2={wide - 12} y1={y(tick)} y2={y(tick)} />
            <text class="tick" x={LEFT - 6} y={y(tick) + 4} text-anchor="end">
              {tick}
            </text>
          </>
        ))}
        {[0, 0.25, 0.5, 0.75, 1].map((part) => (
          <text
            class="tick"
            x={x(part * right)}
            y={HIGH - BOTTOM + 18}
            text-anchor={part === 1 ? "end" : "middle"}
          >
            {plain(part * right)}
          </text>
        ))}
        <text class="tick" x={wide - 12} y={HIGH - 6} text-anchor="end">
          probe NLL, nats a token: less likely →
        </text>
        <text class="tick" x={LEFT} y={HIGH - 6}>
          ← likelier
        </text>
        <text class="tick" x={LEFT + 6} y={y(threshold) - 6}>
          harmful
        </text>
        {dots.map(({ drawn, index, isAfter }) =>
          drawn.map((conversation) => (
            <circle
              class={isAfter ? "after" : "before"}
              cx={x(conversation.nll!)}
              cy={y(conversation.harm!)}
              r={4}
              onClick={() => goTo({ e: index, c: conversation.index })}
            />
          )),
        )}
      </svg>
      <p class="note">
        {dots.map(({ label, isAfter, all, drawn }) => (
          <span class="key">
            <span class={isAfter ? "dot-key after" : "dot-key before"} /> {shown(label)}
            {drawn.length < all.length && `, ${whole(drawn.length)} of ${whole(all.length)}`}
          </span>
        ))}
        {likelyShare(dots)} Choose a dot to read its conversation.
      </p>
    </section>
  );
}

function dotsOf(evaluations: readonly ReportEvaluation[], comparison: ReportRecord["comparison"]): Dots[] {
  const wanted =
    comparison === null ? [evaluations.length - 1] : [...new Set([comparison.before, comparison.after])];
  return wanted.flatMap((index) => {
    const evaluation = evaluations[index];
    if (evaluation === undefined) return [];
    const all = findConversations(evaluation, {
      outcome: "all",
      order: "given",
      query: "",
      once: false,
    }).filter(({ harm, nll }) => harm !== null && nll !== null);
    if (all.length === 0) return [];
    const stride = Math.ceil(all.length / MOST);
    const { label, summary } = evaluation;
    return [
      {
        label,
        index,
        isAfter: index === wanted.at(-1),
        threshold: summary.harm_threshold,
        all,
        drawn: all.filter((_, at) => at % stride === 0),
      },
    ];
  });
}

/** Whether the harm found is likely, compared with the median of the first evaluation. */
function likelyShare(dots: readonly Dots[]): string {
  const after = dots.at(-1)!;
  const before = dots[0]!;
  const harmful = after.all.filter(({ harm }) => harm! >= after.threshold);
  if (harmful.length === 0 || dots.length < 2) return "";
  const sorted = before.all.map(({ nll }) => nll!).sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)]!;
  const likely = harmful.filter(({ nll }) => nll! <= median).length;
  return ` Of ${whole(harmful.length)} harmful ones, ${percent(likely / harmful.length)} are at least as likely as the median of ${shown(before.label)}.`;
}

function niceCeiling(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, 1e-3)));
  return [1, 2, 4, 5, 8, 10].map((factor) => factor * unit).find((ceiling) => ceiling >= value)!;
}
