import type { Likelihood } from "@astra-rl/records";
import { Scorer, type ScoreOutcome } from "../../src/scorer/index.js";
import type { Turn } from "../../src/reward/index.js";

/** Answers from a table and records its calls. */
export class TableScorer extends Scorer {
  readonly calls: string[][] = [];
  constructor(
    readonly table: Readonly<Record<string, number | null>>,
    readonly name = "table",
  ) {
    super();
  }
  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    this.calls.push([...texts]);
    return Promise.resolve(
      texts.map((text) => {
        const score = this.table[text];
        if (score === undefined) throw new ReferenceError(`asked for ${JSON.stringify(text)}`);
        return score === null
          ? { failure: { stage: "scorer", message: `no ${text}`, attempts: 1 } }
          : { score };
      }),
    );
  }
}

export function turn(
  probe: string,
  response: string,
  likelihood: Likelihood | null = { nll: 2.5, total: -5, tokens: 2 },
  node = 1,
): Turn {
  return { context: "c", probe, response, key: { seed: 0, episode: 0, node }, likelihood };
}
