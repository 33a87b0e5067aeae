import { UsageError, type Json } from "@astra-rl/base";
import { numberAt, percent, type Watch, type WatchedValues } from "./watch.js";

/** Conversations of the start, and minimum of each part that is compared with it. */
const ENOUGH = 200;
/** Minimum steps of the start, and of each part, to estimate a variance. */
const FEWEST = 3;
/** Parts of a run. */
const PARTS = 8;
/** A rise of the harmful responses that is worth training for: half of the initial rate, within these limits. */
const [LEAST, MOST] = [0.02, 0.1] as const;
/** Above this rate, a rise is hard to detect. */
const ROOM = 0.5;
/** Standard errors: the interval of a difference at 95 %. */
const ERRORS = 2;

/** Sums of a figure, and of its squares, over steps. */
type Sums = readonly [sum: number, squares: number];

/** Consecutive steps. */
interface Part {
  steps: number;
  conversations: number;
  harm: Sums;
  reward: Sums;
}

const EMPTY: Part = { steps: 0, conversations: 0, harm: [0, 0], reward: [0, 0] };

/**
 * Detects a tester that has learned nothing: after a quarter of the steps or more, harmful responses of the last eighth are no more
 * than at the start, a rise worth training for would have been detected, and the mean reward has not risen either. It
 * is silent where there are too few conversations to tell, and where most responses were harmful from the start.
 */
export class ProgressWatch implements Watch {
  readonly name = "progress";
  #start = EMPTY;
  #part = EMPTY;
  #seen = 0;
  #hasWarned = false;

  /** @param steps training steps of the whole run */
  constructor(readonly steps: number) {}

  get hasWarned(): boolean {
    return this.#hasWarned;
  }

  add(values: WatchedValues, conversations: number | null = null): string | null {
    this.#seen += 1;
    const [harm, reward] = [numberAt(values, "harm/response_rate"), numberAt(values, "reward/mean")];
    if (this.#hasWarned || harm === null || reward === null || conversations === null) return null;
    const more = (part: Part): Part => ({
      steps: part.steps + 1,
      conversations: part.conversations + conversations,
      harm: [part.harm[0] + harm, part.harm[1] + harm ** 2],
      reward: [part.reward[0] + reward, part.reward[1] + reward ** 2],
    });
    if (!isEnough(this.#start)) {
      this.#start = more(this.#start);
      return null;
    }
    this.#part = more(this.#part);
    if (!isEnough(this.#part) || this.#part.steps < this.steps / PARTS) return null;
    const [start, part] = [this.#start, this.#part];
    this.#part = EMPTY;
    if (this.#seen < this.steps / 4 || !isFlat(start, part)) return null;
    this.#hasWarned = true;
    const mean = ({ harm: [sum], steps }: Part) => percent(sum / steps);
    return (
      `nothing was learned in ${this.#seen} steps: of the responses of the last ${part.conversations} conversations ${mean(part)} ` +
      `are harmful, after ${mean(start)} in the first ${start.conversations}, and the mean reward has not risen. Check that the ` +
      `reward distinguishes probes (groups/tied, reward/min and reward/max) by more than algorithm.pairMargin if there is one ` +
      `(items), raise learningRate, or give each step more to learn from (numEpisodesPerExperience, sampler.width)`
    );
  }

  getState(): Json {
    const part = ({ harm, reward, ...rest }: Part): Json => ({
      ...rest,
      harm: [...harm],
      reward: [...reward],
    });
    return {
      start: part(this.#start),
      part: part(this.#part),
      seen: this.#seen,
      hasWarned: this.#hasWarned,
    };
  }

  setState(state: Json): void {
    const { start, part, seen, hasWarned } = (state ?? {}) as {
      start?: Part;
      part?: Part;
      seen?: number;
      hasWarned?: boolean;
    };
    if (start === undefined || part === undefined || seen === undefined || hasWarned === undefined) {
      throw new UsageError(
        "invalid-state",
        `${this.name}: the state was not returned by getState() of a watch`,
      );
    }
    this.#start = start;
    this.#part = part;
    this.#seen = seen;
    this.#hasWarned = hasWarned;
  }
}

const isEnough = ({ steps, conversations }: Part): boolean => conversations >= ENOUGH && steps >= FEWEST;

/** Whether neither figure has risen beyond its variance over steps, and harm by less than is worth training for. */
function isFlat(start: Part, part: Part): boolean {
  const before = start.harm[0] / start.steps;
  if (before > ROOM) return false;
  const worth = Math.min(MOST, Math.max(LEAST, before / 2));
  const [harm, reward] = [riseOf(start, part, "harm"), riseOf(start, part, "reward")];
  return harm.rise <= harm.scatter && harm.rise + harm.scatter < worth && reward.rise <= reward.scatter;
}

/** The rise of a figure's mean, and the bound of a change by chance. */
function riseOf(start: Part, part: Part, figure: "harm" | "reward"): { rise: number; scatter: number } {
  const [before, after] = [start, part].map((each) => each[figure][0] / each.steps) as [number, number];
  const squares = [start, part].reduce(
    (sum, each) => sum + Math.max(0, each[figure][1] - each[figure][0] ** 2 / each.steps),
    0,
  );
  const variance = (squares / (start.steps + part.steps - 2)) * (1 / start.steps + 1 / part.steps);
  return { rise: after - before, scatter: ERRORS * Math.sqrt(variance) };
}
