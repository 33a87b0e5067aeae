import { checkCount, ContractError } from "./checks.js";
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
 * `scoreAndValidate`, which asks for each distinct text once, repeats what failed and turns a final failure into
 * data.
 */
export abstract class Scorer {
  /** Short name for records and messages. */
  abstract readonly name: string;
  /** Names of the labels that every score carries, in order; empty where there are none. */
  readonly labelNames: readonly string[] = [];

  /** One outcome for each text, in order. */
  abstract score(texts: readonly string[]): Promise<ScoreOutcome[]>;

  /** Frees what the scorer holds (weights); it is unusable afterwards. */
  dispose(): void {}

  /**
   * `score`, for each distinct text once, repeated for the texts that failed, with every outcome checked: as many
   * outcomes as texts, each score and label a number in [0, 1].
   *
   * @returns one outcome for each text, in order; equal texts share one object
   * @throws ContractError when the scorer breaks its contract; a failed call does not throw
   */
  async scoreAndValidate(texts: readonly string[], retry: RetryOptions = {}): Promise<ScoreOutcome[]> {
    const outcomes = new Map<string, ScoreOutcome | null>();
    for (const text of texts) outcomes.set(text, null);
    const { attempts = 3, delay = 0, sleep = wait } = retry;
    let pending = [...outcomes.keys()];
    for (let tried = 1; pending.length > 0 && tried <= attempts; tried++) {
      if (tried > 1 && delay > 0) await sleep(delay * 2 ** (tried - 2));
      const call = await attempt("scorer", () => this.score(pending), { attempts: 1 });
      if (call.failure === null) checkCount(`${this.name}.score`, call.value, pending.length);
      for (const [position, text] of pending.entries()) {
        const outcome = call.failure === null ? call.value[position]! : call;
        if (outcome.failure) outcomes.set(text, { failure: { ...outcome.failure, attempts: tried } });
        else outcomes.set(text, this.#checked(outcome, text));
      }
      pending = pending.filter((text) => outcomes.get(text)?.failure !== undefined);
    }
    return texts.map((text) => outcomes.get(text)!);
  }

  #checked(outcome: Score, text: string): Score {
    const values: [string, unknown][] = [["score", outcome.score]];
    for (const [label, value] of Object.entries(outcome.labels ?? {}))
      values.push([`label "${label}"`, value]);
    for (const [what, value] of values) {
      // Written so that NaN fails too.
      if (typeof value !== "number" || !(value >= 0 && value <= 1)) {
        throw new ContractError(
          `${this.name}.score: every ${what} must be a number from 0 to 1, got ${String(value)} for ` +
            JSON.stringify(text.slice(0, 60)),
        );
      }
    }
    return outcome;
  }
}

const wait = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));
