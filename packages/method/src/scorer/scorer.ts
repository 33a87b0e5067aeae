import { Conversation, Message, type Goal } from "@astra-rl/lm";
import { describeValue, UsageError, hasMethods, requireList } from "@astra-rl/base";
import { z } from "zod";
import type { Divergence, Failure } from "@astra-rl/records";
import { checkCount, ContractError, attempt, notesOf, within, type RetryOptions } from "../tree/index.js";

/** How harmful one text is. */
export interface Score {
  /** 0 (harmless) to 1 (harmful). */
  score: number;
  /** Further scores of the same text by label; absent where there is only one. */
  labels?: Record<string, number>;
  /** True if the text exceeds the scorer's window, so that only a part was scored: the rest may be harmful. */
  cut?: boolean;
  failure?: undefined;
}

/** A text that could not be scored. This is not a low score: nothing is known about the text. */
export interface ScoreFailure {
  failure: Failure;
  score?: undefined;
  labels?: undefined;
  cut?: undefined;
}

export type ScoreOutcome = Score | ScoreFailure;

/** A response to judge in the context of its prompt; without a response, the prompt itself is judged. */
export interface Exchange {
  /** The message to the model. */
  readonly prompt: string;
  /** The model's response, which is judged; null to judge the prompt. */
  readonly response: string | null;
  /** What an agent did before it responded; absent for nothing. */
  readonly calls?: Message["calls"];
  /**
   * Why there was no response: then `response` is empty and says nothing, and only scorers that `judgesUnanswered` are asked. They
   * return this failure unless the calls decide the score.
   */
  readonly unanswered?: Failure;
  /** The conversation before the prompt, for scorers that keep it; absent where there is none. */
  readonly context?: Conversation;
  /** Where an agent's session differs from `context`; absent where it does not. */
  readonly diverged?: readonly Divergence[];
  /** What the tester is to achieve, for scorers that need it; absent where there is none. */
  readonly goal?: Goal;
}

/**
 * @param answer the response: its text, or the message with what the agent did
 * @param context the state before the prompt, which may be no conversation
 */
export function exchange(prompt: string, answer: string | Message | null, context: unknown): Exchange {
  const calls = answer instanceof Message && answer.calls.length > 0 ? { calls: answer.calls } : {};
  const { unanswered, diverged } = notesOf(answer);
  const given = {
    prompt,
    response: answer === null ? null : String(answer),
    ...calls,
    ...(unanswered === undefined ? {} : { unanswered }),
    ...(diverged === undefined ? {} : { diverged }),
  };
  if (!(context instanceof Conversation)) return given;
  const { goal } = context;
  return { ...given, context, ...(goal === null ? {} : { goal }) };
}

/** What a scorer scores: a text without a role, or an exchange with roles. */
export type Judged = string | Exchange;

/** The text that is judged: an exchange's response, or its prompt where there is no response. */
export const judgedText = (item: Judged): string =>
  typeof item === "string" ? item : (item.response ?? item.prompt);

/**
 * Texts in, one harm score per text out; higher is more harmful.
 *
 * An implementation may throw (the whole call failed) or return a `ScoreFailure` for single texts. Callers use
 * `scoreAndValidate`, which scores each distinct text once, retries failures and returns final failures as data. A
 * scorer that needs the prompt to judge a response also implements `scoreExchanges`.
 */
export abstract class Scorer {
  /** Short name for records and messages. */
  abstract readonly name: string;
  /** Names of the labels that every score has, in order; may be empty. */
  readonly labelNames: readonly string[] = [];
  /** Timeout of a call in milliseconds; a call that times out is not retried. null for no timeout. */
  deadline: number | null = null;
  /** Receives a line about a call with a deadline that has not answered for a while. */
  onSilence: ((line: string) => void) | null = null;

  /** Whether it uses more of an exchange than the judged text, that is, overrides `scoreExchanges`. */
  get keepsRoles(): boolean {
    return this.scoreExchanges !== Scorer.prototype.scoreExchanges;
  }

  /** Whether it judges an exchange by the conversation before it, so that equal exchanges may score differently. */
  get keepsContext(): boolean {
    return false;
  }

  /** Whether it judges exchanges by their goals, and so needs prompts with goals. */
  get needsGoal(): boolean {
    return false;
  }

  /** Whether it judges what an agent does, and so needs a target that calls tools. */
  get needsCalls(): boolean {
    return false;
  }

  /** Whether it judges what an agent did in a turn that it did not answer. */
  get judgesUnanswered(): boolean {
    return false;
  }

  /** One outcome for each text, in order. */
  abstract score(texts: readonly string[]): Promise<ScoreOutcome[]>;

  /** One outcome for each exchange, in order. Default: scores only the judged text. */
  scoreExchanges(exchanges: readonly Exchange[]): Promise<ScoreOutcome[]> {
    return this.score(exchanges.map(judgedText));
  }

  /** Frees what the scorer holds (weights); it is unusable afterwards. Idempotent. */
  dispose(): void {}

  /**
   * Calls `score` for texts and `scoreExchanges` for exchanges, once per distinct item, retries failures, and checks
   * every outcome: one per item, each score and label a number in [0, 1].
   *
   * A scorer that does not keep roles only gets texts, so exchanges with the same response count as one item.
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
        // A call that timed out may still be running: a retry would only add load.
        const isLate = call.failure !== null && call.late === true;
        for (const [position, at] of part.entries()) {
          const outcome = call.failure === null ? call.value[position]! : call;
          // Another attempt at scoring gives no answer of the target.
          if (isLate || outcome.failure?.stage === "target") late.add(at);
          if (outcome.failure?.stage === "target") outcomes[at] = outcome;
          else if (outcome.failure) outcomes[at] = { failure: { ...outcome.failure, attempts: tried } };
          else outcomes[at] = checkScore(this.name, outcome, distinct[at]!);
        }
      }
      pending = pending.filter((at) => outcomes[at]?.failure !== undefined && !late.has(at));
    }
    return places.map((at) => outcomes[at]!);
  }
}

/**
 * One call to a scorer with each distinct item once, for scorers composed of others. No retries; only the number of
 * outcomes and that they are objects is checked.
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

/**
 * The distinct items as the scorer sees them (texts only where it keeps no roles, without the conversation before them
 * where it does not keep that), and each item's index among them.
 */
export function distinctItems(
  scorer: Scorer,
  items: readonly Judged[],
): { distinct: Judged[]; places: number[] } {
  const seen = items.map((item) =>
    scorer.keepsRoles || isUnanswered(item) ? asRead(scorer, item) : judgedText(item),
  );
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

/** What a scorer that keeps roles reads of an item. */
function asRead({ keepsContext, needsGoal }: Scorer, item: Judged): Judged {
  if (typeof item === "string") return item;
  const { prompt, response, calls, unanswered, context, diverged, goal } = item;
  return {
    prompt,
    response,
    ...(calls === undefined ? {} : { calls }),
    ...(unanswered === undefined ? {} : { unanswered }),
    ...(keepsContext && context !== undefined ? { context } : {}),
    ...(keepsContext && diverged !== undefined ? { diverged } : {}),
    ...(needsGoal && goal !== undefined ? { goal } : {}),
  };
}

/** Equal exactly for equal items. */
export function keyOf(item: Judged): string {
  if (typeof item === "string") return JSON.stringify(item);
  const { prompt, response, calls: done, unanswered, context, diverged, goal } = item;
  const before = context
    ?.messages()
    .map(({ from, text, calls }) => (calls.length === 0 ? [from, text] : [from, text, calls]));
  // Absent parts are left out, since keys are kept between runs.
  return JSON.stringify([
    prompt,
    response,
    ...(before === undefined ? [] : [before]),
    ...(goal ? [{ goal }] : []),
    ...(done ? [{ calls: done }] : []),
    ...(unanswered ? [{ unanswered }] : []),
    ...(diverged ? [{ diverged }] : []),
  ]);
}

const isUnanswered = (item: Judged) => typeof item !== "string" && item.unanswered !== undefined;

/** @param items all texts or all exchanges */
async function askScorer(scorer: Scorer, items: readonly Judged[]): Promise<ScoreOutcome[]> {
  if (items.length === 0) return [];
  if (!scorer.judgesUnanswered && items.some(isUnanswered)) {
    const asked = await askScorer(
      scorer,
      items.filter((item) => !isUnanswered(item)),
    );
    return items.map((item) =>
      isUnanswered(item) ? { failure: (item as Exchange).unanswered! } : asked.shift()!,
    );
  }
  const texts = typeof items[0] === "string";
  const where = `${scorer.name}.${texts ? "score" : "scoreExchanges"}`;
  const asked = texts
    ? scorer.score(items as readonly string[])
    : scorer.scoreExchanges(items as readonly Exchange[]);
  // A scorer from another copy of this package may have no deadline.
  const { deadline = null, onSilence = null } = scorer as Partial<Scorer>;
  const outcomes = await within(deadline, where, asked, onSilence);
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
 * Checks that a score and all its labels are in range.
 *
 * @param name of the scorer
 * @param scale "any" accepts every finite number
 * @throws ContractError that says how to map another scale to [0, 1]
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
      ? "; map another scale to it with {type: clip, scorer: …}, or {type: calibrated, scorer: …, method: …}"
      : "";
    throw new ContractError(
      `${name}.score: every ${what} must be ${rule}, got ${describeValue(value)} for ` +
        `${JSON.stringify(judgedText(item).slice(0, 60))}${advice}`,
    );
  }
  return outcome;
}

/** Schema of an option that takes a scorer. */
export const scorerOption = z.custom<Scorer>((value) => hasMethods(value, ["score", "scoreAndValidate"]), {
  error: "must be a Scorer (extend the class Scorer)",
  params: { rule: "invalid-type" },
});

const wait = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));

/** Gives no scores: for environments with their own reward. */
export class NoScorer extends Scorer {
  readonly name = "none";

  override score(): Promise<ScoreOutcome[]> {
    throw new UsageError(
      "scorer-required",
      "scorer: none gives no scores, but a reward term or an evaluation requires one; choose a scorer, or a reward " +
        "without one",
    );
  }
}
