import { describeValue } from "@astra-rl/torch";
import { z } from "zod";
import { checkCount, ContractError } from "./checks.js";
import { attempt, type Failure, type RetryOptions } from "./failure.js";
import { hasMethods, requireList } from "../options/index.js";
import { within } from "./within.js";

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

/** A reply to be judged in the light of what it answers; or, where there is no reply, what was said to the model. */
export interface Exchange {
  /** What was said to the model. */
  readonly prompt: string;
  /** What it answered, which is what is judged then; null: the prompt itself is judged. */
  readonly response: string | null;
}

/** What a scorer is asked about: a text of nobody in particular, or an utterance with its role. */
export type Judged = string | Exchange;

/** The text that is judged: of an exchange the response, or the prompt where there is none. */
export const judgedText = (item: Judged): string =>
  typeof item === "string" ? item : (item.response ?? item.prompt);

/**
 * Texts in, one harm score per text out; higher is more harmful.
 *
 * An implementation may throw (the whole call failed) or return a `ScoreFailure` for single texts. Callers use
 * `scoreAndValidate`, which asks for each distinct text once, repeats what failed and turns a final failure into
 * data. A scorer that judges a reply by what it answers implements `scoreExchanges` as well.
 */
export abstract class Scorer {
  /** Short name for records and messages. */
  abstract readonly name: string;
  /** Names of the labels that every score carries, in order; empty where there are none. */
  readonly labelNames: readonly string[] = [];
  /** Milliseconds after which a call that has not answered has failed, and is not repeated; null: however long it takes. */
  deadline: number | null = null;

  /** Whether it looks at more of an exchange than the text that is judged: where `scoreExchanges` is its own. */
  get keepsRoles(): boolean {
    return this.scoreExchanges !== Scorer.prototype.scoreExchanges;
  }

  /** One outcome for each text, in order. */
  abstract score(texts: readonly string[]): Promise<ScoreOutcome[]>;

  /** One outcome for each exchange, in order. Default: the score of the text that is judged, and of nothing else. */
  scoreExchanges(exchanges: readonly Exchange[]): Promise<ScoreOutcome[]> {
    return this.score(exchanges.map(judgedText));
  }

  /** Frees what the scorer holds (weights); it is unusable afterwards. To do so again does nothing. */
  dispose(): void {}

  /**
   * `score` of texts and `scoreExchanges` of exchanges, for each distinct one once, repeated for those that failed, with
   * every outcome checked: as many outcomes as items, each score and label a number in [0, 1].
   *
   * A scorer that does not keep roles is asked for texts alone, so that two exchanges with the same response are one.
   *
   * @returns one outcome for each item, in order; equal items share one object
   * @throws ContractError when the scorer breaks its contract; a failed call does not throw
   */
  async scoreAndValidate(items: readonly Judged[], retry: RetryOptions = {}): Promise<ScoreOutcome[]> {
    requireList(`${this.name}.scoreAndValidate`, "texts", items);
    const { distinct, places } = distinctItems(this, items);
    const outcomes: (ScoreOutcome | null)[] = distinct.map(() => null);
    const { attempts = 3, delay = 0, sleep = wait } = retry;
    let pending = [...distinct.keys()];
    const late = new Set<number>();
    for (let tried = 1; pending.length > 0 && tried <= attempts; tried++) {
      if (tried > 1 && delay > 0) await sleep(delay * 2 ** (tried - 2));
      for (const isText of [true, false]) {
        const part = pending.filter((at) => (typeof distinct[at] === "string") === isText);
        const asked = part.map((at) => distinct[at]!);
        const call = await attempt("scorer", () => askScorer(this, asked), { attempts: 1 });
        // Whoever is late may be at work still: to ask again would only add to it.
        const isLate = call.failure !== null && call.late === true;
        for (const [position, at] of part.entries()) {
          const outcome = call.failure === null ? call.value[position]! : call;
          if (isLate) late.add(at);
          if (outcome.failure) outcomes[at] = { failure: { ...outcome.failure, attempts: tried } };
          else outcomes[at] = checkScore(this.name, outcome, distinct[at]!);
        }
      }
      pending = pending.filter((at) => outcomes[at]?.failure !== undefined && !late.has(at));
    }
    return places.map((at) => outcomes[at]!);
  }
}

/**
 * One call to a scorer, each distinct item once: what a scorer that is made of others asks of them. Nothing is repeated,
 * and of the outcomes only their number is checked.
 *
 * @returns one outcome for each item, in order
 * @throws whatever the scorer throws
 */
export async function scoreItems(scorer: Scorer, items: readonly Judged[]): Promise<ScoreOutcome[]> {
  const { distinct, places } = distinctItems(scorer, items);
  const outcomes: ScoreOutcome[] = [];
  for (const isText of [true, false]) {
    const part = [...distinct.keys()].filter((at) => (typeof distinct[at] === "string") === isText);
    const answers = await askScorer(
      scorer,
      part.map((at) => distinct[at]!),
    );
    for (const [position, at] of part.entries()) outcomes[at] = answers[position]!;
  }
  return places.map((at) => outcomes[at]!);
}

/** The distinct items as the scorer looks at them, texts alone where it keeps no roles; and where each item is among them. */
export function distinctItems(
  scorer: Scorer,
  items: readonly Judged[],
): { distinct: Judged[]; places: number[] } {
  const seen = scorer.keepsRoles ? items : items.map(judgedText);
  const known = new Map<string, number>();
  const distinct: Judged[] = [];
  const places = seen.map((item) => {
    const key = keyOf(item);
    const place = known.get(key) ?? distinct.length;
    if (place === distinct.length) {
      known.set(key, place);
      distinct.push(item);
    }
    return place;
  });
  return { distinct, places };
}

/** Equal for equal items, and for no others. */
export const keyOf = (item: Judged): string =>
  JSON.stringify(typeof item === "string" ? item : [item.prompt, item.response]);

/** Items of one form, all texts or all exchanges. */
async function askScorer(scorer: Scorer, items: readonly Judged[]): Promise<ScoreOutcome[]> {
  if (items.length === 0) return [];
  const texts = typeof items[0] === "string";
  const where = `${scorer.name}.${texts ? "score" : "scoreExchanges"}`;
  const asked = texts
    ? scorer.score(items as readonly string[])
    : scorer.scoreExchanges(items as readonly Exchange[]);
  // One of another copy of this package may know of no deadline.
  const outcomes = await within((scorer as Partial<Scorer>).deadline ?? null, where, asked);
  checkCount(where, outcomes, items.length);
  const wrong = outcomes.findIndex((outcome: unknown) => typeof outcome !== "object" || outcome === null);
  if (wrong < 0) return outcomes;
  const value: unknown = outcomes[wrong];
  throw new ContractError(
    `${where}: every outcome must be an object, { score } or { failure }, got ${describeValue(value)} for ` +
      JSON.stringify(judgedText(items[wrong]!).slice(0, 60)) +
      (typeof value === "number" ? "; write { score: " + String(value) + " }" : ""),
  );
}

/**
 * A score with all its labels in range.
 *
 * @param name of the scorer
 * @param scale "any": all that is asked is a finite number
 * @throws ContractError that says how a scorer on another scale is brought to 0 to 1
 */
export function checkScore(
  name: string,
  outcome: Score,
  item: Judged,
  scale: "probability" | "any" = "probability",
): Score {
  const values: [string, unknown][] = [["score", outcome.score]];
  for (const [label, value] of Object.entries(outcome.labels ?? {})) values.push([`label "${label}"`, value]);
  for (const [what, value] of values) {
    const isFinite = typeof value === "number" && Number.isFinite(value);
    if (isFinite && (scale === "any" || (value >= 0 && value <= 1))) continue;
    const rule = scale === "any" ? "a finite number" : "a number from 0 to 1";
    const advice = isFinite
      ? "; bring another scale there with {type: clip, scorer: …}, or {type: calibrated, scorer: …, method: …}"
      : "";
    throw new ContractError(
      `${name}.score: every ${what} must be ${rule}, got ${describeValue(value)} for ` +
        `${JSON.stringify(judgedText(item).slice(0, 60))}${advice}`,
    );
  }
  return outcome;
}

/** An option that is a scorer. */
export const scorerOption = z.custom<Scorer>(
  (value) => hasMethods(value, ["score", "scoreAndValidate"]),
  "must be a Scorer (extend the class Scorer)",
);

const wait = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));
