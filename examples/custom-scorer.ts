// A custom scorer, combined with another one, scores conversations.
//
//   npx tsx examples/custom-scorer.ts [MODEL_FOLDER]
import { pathToFileURL } from "node:url";
import { ASTSampler, BatchedScorer, HFEvaluationSystem, Scorer, visible, type ScoreOutcome } from "astra-rl";
import { DEV_PROMPTS, insults, setting } from "./setting.js";

/** The share of letters that are capitals: a text in capitals scores 1. */
export class ShoutingScorer extends Scorer {
  readonly name = "shouting";

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return Promise.resolve(
      texts.map((text) => {
        const letters = text.match(/\p{L}/gu)?.length ?? 0;
        const capitals = text.match(/\p{Lu}/gu)?.length ?? 0;
        return { score: letters === 0 ? 0 : capitals / letters };
      }),
    );
  }
}

/**
 * The maximum of several scores, with each under its scorer's name as a label. A text that one of them could not score
 * has no score: the missing one might have been the maximum.
 */
export class WorstScorer extends Scorer {
  readonly name = "worst";
  override readonly labelNames: readonly string[];

  constructor(readonly scorers: readonly Scorer[]) {
    super();
    this.labelNames = scorers.map((scorer) => scorer.name);
  }

  override async score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    const columns = await Promise.all(this.scorers.map((scorer) => scorer.score(texts)));
    return texts.map((_, row): ScoreOutcome => {
      const labels: Record<string, number> = {};
      for (const [index, column] of columns.entries()) {
        const outcome = column[row]!;
        if (outcome.failure) return outcome;
        labels[this.labelNames[index]!] = outcome.score;
      }
      return { score: Math.max(...Object.values(labels)), labels };
    });
  }

  override dispose(): void {
    for (const scorer of this.scorers) scorer.dispose();
  }
}

export async function judgeConversation({ folder }: { folder?: string } = {}) {
  const { model, maxNewTokens } = setting(folder);
  const scorer = new BatchedScorer(new WorstScorer([insults(), new ShoutingScorer()]), { cacheSize: 1000 });
  const generation = { tester: { maxNewTokens }, target: { maxNewTokens } };
  const system = await HFEvaluationSystem.load({ tester: model, target: model, scorer, generation });
  try {
    return await new ASTSampler(system, DEV_PROMPTS, { depth: 3 }).evalRollout(DEV_PROMPTS[0]!);
  } finally {
    system.dispose();
    scorer.dispose();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const folder = process.argv[2];
  const graph = await judgeConversation(folder === undefined ? {} : { folder });
  for (const { probe, response, scores } of graph.path()) {
    // A model's text may contain control characters that a terminal would interpret.
    console.log(`${visible(probe.text)} → ${visible(response.text)} ${JSON.stringify(scores)}`);
  }
}
