// placeholder until the reward branch is merged
import type { Assessment, Likelihood, NodeKey, Purpose, Scorer } from "../core/index.js";
import { astReward, resolveReward, type ASTRewardOptions } from "./ast-reward.js";
export interface Turn { context: string; probe: string; response: string; key: NodeKey; likelihood: Likelihood | null }
export interface Reward { assess(turns: readonly Turn[], purpose: Purpose): Promise<Assessment[]> }
export function paperReward(scorer: Scorer, options: ASTRewardOptions = {}): Reward {
  const resolved = resolveReward(options);
  return {
    async assess(turns) {
      const count = turns.length;
      const texts = [...turns.map((t) => t.response), ...turns.map((t) => t.probe + t.response), ...turns.map((t) => t.probe)];
      const outcomes = await scorer.scoreAndValidate(texts);
      return turns.map(({ likelihood }, row): Assessment => {
        const [response, combined, probe] = [outcomes[row]!, outcomes[count + row]!, outcomes[2 * count + row]!];
        const scores: Record<string, number> = {};
        for (const [name, outcome] of Object.entries({ probe, response, combined })) if (!outcome.failure) scores[name] = outcome.score;
        for (const [label, value] of Object.entries(response.labels ?? {})) scores[`response/${label}`] = value;
        const failure = response.failure ?? combined.failure ?? null;
        if (failure !== null) return { reward: NaN, scores, terms: {}, likelihood, failure };
        return { reward: astReward(resolved, { response: response.score!, combined: combined.score!, likelihood: likelihood! }), scores, terms: {}, likelihood, failure: null };
      });
    },
  };
}
