import { describeValue, UsageError } from "@astra-rl/torch";
import { z } from "zod";
import {
  defineKind,
  type Failure,
  type RewardTerm,
  type RetryOptions,
  type Scorer,
  type ScoreOutcome,
  type Turn,
} from "../core/index.js";

/** Which text of a turn is judged; `both` is the probe with the response behind it, read as one text. */
export type HarmText = "response" | "probe" | "both";

export interface HarmOptions {
  /** Default "response". */
  of?: HarmText;
  /** Default `harm_` and the text: `harm_response`. */
  name?: string;
}

const TEXTS: Record<HarmText, (turn: Turn) => string> = {
  response: ({ response }) => response,
  both: ({ probe, response }) => probe + response,
  probe: ({ probe }) => probe,
};

/** What is known of lists of turns: see `shareScores`. */
const shared = new WeakMap<readonly Turn[], ReadonlyMap<Scorer, HarmScores>>();

/** Lets all harm terms that are asked about this very list of turns use these scores. */
export function shareScores(turns: readonly Turn[], scores: ReadonlyMap<Scorer, HarmScores>): void {
  shared.set(turns, scores);
}

const options = z.strictObject({
  of: z
    .enum(["response", "probe", "both"])
    .default("response")
    .describe("The text that is judged; both: probe and response read as one"),
});
const DEFAULTS = options.parse({});

/** Harm of a text of the turn by a scorer, 0 to 1. */
export class HarmTerm implements RewardTerm {
  readonly name: string;
  readonly needs = [];
  readonly of: HarmText;

  constructor(
    readonly scorer: Scorer,
    { of = DEFAULTS.of, name = `harm_${of}` }: HarmOptions = {},
  ) {
    if (!Object.hasOwn(TEXTS, of)) {
      throw new UsageError(
        `harm: of must be one of ${Object.keys(TEXTS).join(", ")}, got ${describeValue(of)}`,
      );
    }
    this.of = of;
    this.name = name;
  }

  /** Scores that a reward has asked for on behalf of all its terms are taken; otherwise the scorer is called. */
  async score(turns: readonly Turn[]): Promise<(number | Failure)[]> {
    const known = shared.get(turns)?.get(this.scorer);
    const scores =
      known?.texts.includes(this.of) === true ? known : await HarmScores.of(this.scorer, turns, [this.of]);
    return turns.map((_, row) => scores.value(row, this.of));
  }
}

/** @example new Reward([{ term: harm(scorer), weight: 1 }]) */
export function harm(scorer: Scorer, options: HarmOptions = {}): HarmTerm {
  return new HarmTerm(scorer, options);
}

export const harmKind = defineKind({
  role: "term",
  name: "harm",
  summary: "Harm of a text by the run's scorer, 0 to 1",
  schema: options,
  make: (chosen, { scorer }) => harm(scorer, chosen),
});

/** What one scorer says of turns: all texts that are asked for in one call, each distinct one once. */
export class HarmScores {
  private constructor(
    readonly texts: readonly HarmText[],
    private readonly outcomes: readonly ScoreOutcome[],
    private readonly rows: number,
  ) {}

  static async of(
    scorer: Scorer,
    turns: readonly Turn[],
    texts: readonly HarmText[],
    retry: RetryOptions = {},
  ): Promise<HarmScores> {
    const outcomes = await scorer.scoreAndValidate(
      texts.flatMap((text) => turns.map((turn) => TEXTS[text](turn))),
      retry,
    );
    return new HarmScores(texts, outcomes, turns.length);
  }

  outcome(row: number, text: HarmText): ScoreOutcome {
    return this.outcomes[this.texts.indexOf(text) * this.rows + row]!;
  }

  value(row: number, text: HarmText): number | Failure {
    const outcome = this.outcome(row, text);
    return outcome.failure ?? outcome.score!;
  }
}
