import { percent, plain, table, visible } from "@astra-rl/report";
import type { Audit, ScorerAudit } from "./audit-evaluation.js";

type Share = { estimate: number; lower: number; upper: number } | null;

/** How the scorers of an evaluation compare with people, as lines of a terminal. */
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
    `People judged ${nAudited} rollouts and call ${nHarmful} of them harmful.`,
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
          "–: people have judged none of what the scorer calls a success, or none of the rest; judge more rollouts",
        ]
      : []),
  ];
}
