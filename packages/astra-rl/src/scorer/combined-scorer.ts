import { UsageError } from "@astra-rl/torch";
import { z } from "zod";
import { requireList } from "../options/index.js";
import type { Failure, Judged, Scorer, ScoreOutcome } from "../core/index.js";
import type { KindSection } from "../kinds/index.js";
import { askPart, ComposedScorer } from "./composed-scorer.js";

/** Options of combined scorers in code. */
export const nameOptions = (name: string) => z.strictObject({ name: z.string().min(1).default(name) });

/**
 * Combines the scores of several scorers. Each part's score is kept as a label under its name, its own labels under
 * that prefix (`keyword`, `keyword/insult`); the second part with the same name becomes `keyword-2`.
 *
 * If any part fails on an item, the item has no score, since the missing score might have been decisive.
 */
export abstract class CombinedScorer extends ComposedScorer {
  override readonly labelNames: readonly string[];
  readonly #prefixes: readonly string[];

  /** @throws UsageError for no parts */
  constructor(
    readonly name: string,
    parts: readonly Scorer[],
  ) {
    requireList(name, "scorers", parts);
    super(parts);
    if (parts.length === 0) throw new UsageError(`${name}: needs at least one scorer, got none`);
    this.#prefixes = distinctNames(parts);
    this.labelNames = parts.flatMap((part, index) => {
      const prefix = this.#prefixes[index]!;
      return [prefix, ...part.labelNames.map((label) => `${prefix}/${label}`)];
    });
  }

  /** Combines the parts' scores, which are in order and in [0, 1]. */
  protected abstract combine(scores: readonly number[]): number;

  protected override async judge(items: readonly Judged[]): Promise<ScoreOutcome[]> {
    const columns: ScoreOutcome[][] = [];
    // Sequential: parts that are models would compete for the same processors.
    for (const part of this.parts) columns.push(await askPart(part, items));
    return items.map((_, row) => this.#combined(columns.map((column) => column[row]!)));
  }

  #combined(outcomes: readonly ScoreOutcome[]): ScoreOutcome {
    const labels: Record<string, number> = {};
    const scores: number[] = [];
    const failures: Failure[] = [];
    for (const [index, outcome] of outcomes.entries()) {
      const prefix = this.#prefixes[index]!;
      if (outcome.failure) {
        failures.push(outcome.failure);
        continue;
      }
      scores.push(outcome.score);
      labels[prefix] = outcome.score;
      for (const [label, value] of Object.entries(outcome.labels ?? {})) labels[`${prefix}/${label}`] = value;
    }
    const [failure] = failures;
    return failure === undefined ? { score: this.combine(scores), labels } : { failure };
  }
}

function distinctNames(parts: readonly Scorer[]): string[] {
  const names: string[] = [];
  for (const { name } of parts) {
    let distinct = name;
    for (let count = 2; names.includes(distinct); count++) distinct = `${name}-${count}`;
    names.push(distinct);
  }
  return names;
}

/** Creates scorers in order; if one fails, frees the previous ones. */
export async function makeScorers(
  sections: readonly KindSection[],
  make: (section: KindSection) => Promise<Scorer>,
): Promise<Scorer[]> {
  const made: Scorer[] = [];
  try {
    for (const section of sections) made.push(await make(section));
    return made;
  } catch (error) {
    for (const scorer of made) scorer.dispose();
    throw error;
  }
}
