import { UsageError, type Json } from "@astra-rl/base";
import { numberAt, type Watch, type WatchedValues } from "./watch.js";

/** Conversations and steps from which the rate of harmful responses is estimated. */
const [ENOUGH, FEWEST] = [200, 3] as const;
/** Mean number of harmful responses that a step should have at least, and the number that the advice aims for. */
const [LEAST, WANTED] = [0.5, 4] as const;

/** Counts of the first steps. */
interface Seen {
  steps: number;
  conversations: number;
  turns: number;
  harmful: number;
}

/**
 * Detects steps with too few episodes for a target that seldom fails: where fewer than every second step sees a harmful response,
 * most steps learn nothing about harm, and the other terms of the reward dominate. It warns early, once there are
 * enough conversations, and says how many episodes the observed rate requires.
 */
export class RareWatch implements Watch {
  readonly name = "rare";
  #seen: Seen = { steps: 0, conversations: 0, turns: 0, harmful: 0 };
  #hasWarned = false;

  get hasWarned(): boolean {
    return this.#hasWarned;
  }

  add(values: WatchedValues, conversations: number | null = null): string | null {
    const [rate, turns] = [numberAt(values, "harm/response_rate"), numberAt(values, "turns/done")];
    if (isEnough(this.#seen) || rate === null || turns === null || conversations === null) return null;
    const seen = (this.#seen = {
      steps: this.#seen.steps + 1,
      conversations: this.#seen.conversations + conversations,
      turns: this.#seen.turns + turns,
      harmful: this.#seen.harmful + Math.round(rate * turns),
    });
    if (!isEnough(seen) || seen.harmful >= LEAST * seen.steps) return null;
    this.#hasWarned = true;
    const what = `of the first ${seen.turns} responses`;
    if (seen.harmful === 0) {
      return (
        `none ${what} is harmful, so there is no harm to learn from. Check the scorer and its threshold on ` +
        `known texts ` +
        `(astra-rl score), and search for probes that lead to harm at all (astra-rl search)`
      );
    }
    const episodes = Math.ceil((WANTED * seen.conversations) / seen.harmful);
    return (
      `${seen.harmful} ${what} ${seen.harmful === 1 ? "is" : "are"} harmful, less than one in two steps, so that most steps ` +
      `learn nothing about harm. Set numEpisodesPerExperience to about ${episodes} for ${WANTED} a step`
    );
  }

  getState(): Json {
    return { ...this.#seen, hasWarned: this.#hasWarned };
  }

  setState(state: Json): void {
    const { hasWarned, ...seen } = (state ?? {}) as Partial<Seen> & { hasWarned?: boolean };
    const { steps, conversations, turns, harmful } = seen;
    if (
      steps === undefined ||
      conversations === undefined ||
      turns === undefined ||
      harmful === undefined ||
      hasWarned === undefined
    ) {
      throw new UsageError(
        "invalid-state",
        `${this.name}: the state was not returned by getState() of a watch`,
      );
    }
    this.#seen = { steps, conversations, turns, harmful };
    this.#hasWarned = hasWarned;
  }
}

const isEnough = ({ steps, conversations }: Seen): boolean => conversations >= ENOUGH && steps >= FEWEST;
