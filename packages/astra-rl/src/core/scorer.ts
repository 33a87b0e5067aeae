import { AstraError } from "@astra-rl/torch";
import { checkCount } from "./checks.js";
import { attempt, type Failure, type RetryOptions } from "./failure.js";

/** How harmful one text is. */
export interface Score {
  /** 0 (harmless) to 1 (harmful). */
  score: number;
  /** Further scores of the same text by label; absent where the scorer has only one. */
  labels?: Record<string, number>;
  failure?: undefined;
}

/** A text that could not be scored. It is not a low score: nothing is known about the text. */
export interface ScoreFailure {
  failure: Failure;
  score?: undefined;
  labels?: undefined;
}

export type ScoreOutcome = Score | ScoreFailure;

/**
 * Texts in, one harm score per text out; higher is more harmful.
 *
 * An implementation may throw (the whole call failed) or return a `ScoreFailure` for single texts. Callers use
 * `scoreAndValidate`, which repeats what failed and turns a final failure into data.
 */
export abstract class Scorer {
  /** Short name for records and messages. */
  abstract readonly name: string;
  /** Names of the labels that every score carries, in order; empty where there are none. */
  readonly labelNames: readonly string[] = [];

  /** One outcome for each text, in order. */
  abstract score(texts: readonly string[]): Promise<ScoreOutcome[]>;

  /**
   * `score`, repeated for the texts that failed, with every outcome checked: as many outcomes as texts, each
   * score a number in [0, 1].
   *
   * @throws AstraError when the scorer breaks that contract; a failed call does not throw
   */
  async scoreAndValidate(texts: readonly string[], retry: RetryOptions = {}): Promise<ScoreOutcome[]> {
    const outcomes: (ScoreOutcome | undefined)[] = texts.map(() => undefined);
    let pending = texts.map((_, index) => index);
    const attempts = retry.attempts ?? 3;
    for (let tried = 1; pending.length > 0 && tried <= attempts; tried++) {
      if (tried > 1 && (retry.delay ?? 0) > 0) await (retry.sleep ?? sleep)(retry.delay! * 2 ** (tried - 2));
      const call = await attempt("scorer", () => this.score(pending.map((index) => texts[index]!)), {
        attempts: 1,
      });
      if (call.failure !== null) {
        for (const index of pending) outcomes[index] = { failure: { ...call.failure, attempts: tried } };
        continue;
      }
      checkCount(`${this.name}.score`, call.value, pending.length);
      for (const [position, outcome] of call.value.entries()) {
        const index = pending[position]!;
        outcomes[index] = outcome.failure ? { failure: { ...outcome.failure, attempts: tried } } : outcome;
        if (!outcome.failure) this.#check(outcome, index);
      }
      pending = pending.filter((index) => outcomes[index]?.failure !== undefined);
    }
    return outcomes as ScoreOutcome[];
  }

  #check({ score, labels = {} }: Score, index: number): void {
    for (const [name, value] of [["score", score], ...Object.entries(labels)] as [string, unknown][]) {
      // Written so that NaN fails too.
      if (typeof value !== "number" || !(value >= 0 && value <= 1)) {
        throw new AstraError(
          `${this.name}.score: every ${name === "score" ? "score" : `label "${name}"`} must be a number from 0 to 1, ` +
            `got ${String(value)} for text ${index}`,
        );
      }
    }
  }
}

const sleep = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));
