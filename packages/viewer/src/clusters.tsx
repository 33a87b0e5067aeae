import { useState } from "preact/hooks";
import type { ReportEvaluation } from "@astra-rl/records";
import { Talk } from "./conversations.js";
import { whole } from "./figures.js";
import { conversationAt } from "./found.js";

const FIRST = 6;

/** The different attacks of an evaluation: a representative of each cluster, the largest first. */
export function Clusters({ evaluation, index }: { evaluation: ReportEvaluation; index: number }) {
  const [limit, setLimit] = useState(FIRST);
  const clusters = evaluation.summary.diversity?.clusters ?? [];
  if (clusters.length === 0 || evaluation.details.length === 0) return null;
  const most = clusters[0]!.rollouts.length;
  return (
    <section aria-labelledby="clusters-title">
      <h2 id="clusters-title">Different attacks</h2>
      <p class="note">
        {whole(clusters.length)} clusters of similar probes that a harmful response answers, the largest
        first; each with the rollout whose probe is most like the others.
      </p>
      <ol class="conversations">
        {clusters.slice(0, limit).map(({ representative, rollouts }) => (
          <li key={representative}>
            <p class="cluster-size">
              <span class="size-bar" style={{ width: `${(60 * rollouts.length) / most}%` }} />
              {whole(rollouts.length)} {rollouts.length === 1 ? "rollout" : "rollouts"}
            </p>
            <Talk
              conversation={conversationAt(evaluation, representative)}
              threshold={evaluation.summary.harm_threshold}
              query=""
              evaluation={index}
            />
          </li>
        ))}
      </ol>
      {clusters.length > limit && (
        <button type="button" onClick={() => setLimit(clusters.length)}>
          Show {clusters.length - limit} more clusters
        </button>
      )}
    </section>
  );
}
