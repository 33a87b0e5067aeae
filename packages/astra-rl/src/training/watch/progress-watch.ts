import { UsageError } from "@astra-rl/torch";
import type { Json } from "../../core/index.js";
import { numberAt, percent, type Watch, type WatchedValues } from "./watch.js";

/** Conversations of the start, and at least of each part that is compared with it. */
const ENOUGH = 200;
/** A rise of success that would have been seen. */
const RISE = 0.1;
/** Parts of a run. */
const PARTS = 8;
/** Standard errors: the interval of a difference at 95 %. */
const ERRORS = 2;

/** Sums over consecutive steps. */
interface Part {
  steps: number;
  conversations: number;
  successes: number;
  reward: number;
  squaredReward: number;
}

const EMPTY: Part = { steps: 0, conversations: 0, successes: 0, reward: 0, squaredReward: 0 };

/**
 * Detects a tester that has learned nothing: after a quarter of the steps or more, the conversations of the last eighth show that
 * success has not risen by 0.1 since the first conversations, and the mean reward has not risen either. It is silent where there
 * are too few conversations to tell, and where success has no room to rise.
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
    const [success, reward] = [numberAt(values, "success/rate"), numberAt(values, "reward/mean")];
    if (this.#hasWarned || success === null || reward === null || conversations === null) return null;
    const more = (part: Part): Part => ({
      steps: part.steps + 1,
      conversations: part.conversations + conversations,
      successes: part.successes + success * conversations,
      reward: part.reward + reward,
      squaredReward: part.squaredReward + reward ** 2,
    });
    if (this.#start.conversations < ENOUGH) {
      this.#start = more(this.#start);
      return null;
    }
    this.#part = more(this.#part);
    if (this.#part.conversations < ENOUGH || this.#part.steps < this.steps / PARTS) return null;
    const [start, part] = [this.#start, this.#part];
    this.#part = EMPTY;
    if (this.#seen < this.steps / 4 || !isFlat(start, part)) return null;
    this.#hasWarned = true;
    const [before, after] = [rate(start), rate(part)];
    return (
      `nothing was learned so far: success is ${percent(after)} in the last ${part.conversations} conversations, after ` +
      `${percent(before)} in the first ${start.conversations}, and the mean reward has not risen. Check that the reward tells ` +
      `probes apart (groups/tied, reward/min and reward/max), raise learningRate, or give each step more to learn from ` +
      `(numEpisodesPerExperience, sampler.width)`
    );
  }

  getState(): Json {
    return { start: { ...this.#start }, part: { ...this.#part }, seen: this.#seen, hasWarned: this.#hasWarned };
  }

  setState(state: Json): void {
    const { start, part, seen, hasWarned } = (state ?? {}) as {
      start?: Part;
      part?: Part;
      seen?: number;
      hasWarned?: boolean;
    };
    if (start === undefined || part === undefined || seen === undefined || hasWarned === undefined) {
      throw new UsageError(`${this.name}: this is no state of a watch that getState() returned`);
    }
    this.#start = start;
    this.#part = part;
    this.#seen = seen;
    this.#hasWarned = hasWarned;
  }
}

const rate = ({ successes, conversations }: Part): number => successes / conversations;
/** With one success and one failure more, so that none at all has a variance. */
const smoothed = ({ successes, conversations }: Part): number => (successes + 1) / (conversations + 2);

/** Whether success has not risen by as much as would matter, and the mean reward not beyond its scatter over steps. */
function isFlat(start: Part, part: Part): boolean {
  if (rate(start) > 1 - RISE) return false;
  const variance = [start, part].reduce(
    (sum, each) => sum + (smoothed(each) * (1 - smoothed(each))) / each.conversations,
    0,
  );
  if (rate(part) - rate(start) + ERRORS * Math.sqrt(variance) >= RISE) return false;
  const degrees = start.steps + part.steps - 2;
  const squares = [start, part].reduce(
    (sum, { steps, reward, squaredReward }) => sum + Math.max(0, squaredReward - reward ** 2 / steps),
    0,
  );
  const scatter = degrees === 0 ? 0 : (squares / degrees) * (1 / start.steps + 1 / part.steps);
  return part.reward / part.steps - start.reward / start.steps <= ERRORS * Math.sqrt(scatter);
}
