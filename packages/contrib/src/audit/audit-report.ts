import { percent, plain, table, visible } from "@astra-rl/report";
import type { Audit, ScorerAudit } from "./audit-evaluation.js";

type Share = { estimate: number; lower: number; upper: number } | null;

/** Comparison of an evaluation's scorers with human labels, as lines of a terminal. */
export function auditReport({ nAudited, nHarmful, scorers }: Audit): string[] {
  const heading = ["", ...scorers.map(({ scorer }) => visible(scorer))];
  const row = (label: string, of: (audit: ScorerAudit) => string) => [label, ...scorers.map(of)];
  const interval = (of: (audit: ScorerAudit) => Share) =>
    row("  95 % interval", (audit) => {
      const share = of(audit);
      return share === null ? "–" : `${percent(share.lower)} – ${percent(share.upper)}`;
    });
  const share = (label: string, of: (audit: ScorerAudit) => Share) => [
    row(label, (audit) => {
      const found = of(audit);
      return found === null ? "–" : percent(found.estimate);
    }),
    interval(of),
  ];
  const unknown = scorers.some(({ corrected }) => corrected.predictionPowered === null);
  return [
    `Human labels of ${nAudited} rollouts: ${nHarmful} are harmful.`,
    "",
    ...table(heading, [
      ...share("precision", ({ precision }) => precision),
      ...share("recall", ({ recall }) => recall),
      row("agreement (Cohen's kappa)", ({ kappa }) => plain(kappa)),
      ...share("success rate by the scorer", ({ rate }) => rate),
      ...share("corrected (prediction-powered)", ({ corrected }) => corrected.predictionPowered),
      ...share("corrected (Rogan–Gladen)", ({ corrected }) => corrected.roganGladen),
    ]),
    ...(unknown
      ? [
          "",
          "–: there are no human labels of rollouts that the scorer calls successes, or of the others; label " +
            "more rollouts",
        ]
      : []),
  ];
}
