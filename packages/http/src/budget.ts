import { UsageError } from "@astra-rl/base";
import type { ServerOptions } from "./options.js";

/** What calls cost. */
export interface Cost {
  calls: number;
  /** Tokens of inputs. */
  input: number;
  /** Tokens of answers. */
  output: number;
}

export const NOTHING: Cost = { calls: 0, input: 0, output: 0 };

export const plus = (a: Cost, b: Cost, sign = 1): Cost => ({
  calls: a.calls + sign * b.calls,
  input: a.input + sign * b.input,
  output: a.output + sign * b.output,
});

/** A spending limit is reached: the run stops, and can be resumed with a higher one. */
export class BudgetError extends UsageError {
  override name = "BudgetError";
}

/**
 * Spending of one model. A call reserves its maximum cost before it is sent, so that limits hold for any number of
 * calls in flight; the unused part is returned.
 */
export class Budget {
  #spent = NOTHING;
  #reserved = NOTHING;
  readonly #waiting: (() => void)[] = [];
  #limits: ServerOptions["budget"];
  #sharing = 1;

  /** @param where begins messages */
  constructor(
    readonly where: string,
    readonly limits: ServerOptions["budget"],
    readonly price: ServerOptions["price"],
  ) {
    this.#limits = limits;
  }

  get spent(): Readonly<Cost> {
    return this.#spent;
  }

  /** null without a price. */
  dollars({ input, output }: Cost): number | null {
    return this.price === undefined ? null : (input * this.price.input + output * this.price.output) / 1e6;
  }

  /**
   * Adds the spending of earlier processes, and gives each of several processes an equal part of the rest, so that they
   * respect the limits without communication.
   */
  share(earlier: Cost, processes: number): void {
    const part = (limit: number | undefined, spent: number) =>
      limit === undefined ? undefined : spent + Math.max(0, limit - spent) / processes;
    const { calls, tokens, dollars } = this.limits;
    this.#spent = plus(this.#spent, earlier);
    this.#sharing = processes;
    this.#limits = {
      calls: part(calls, earlier.calls),
      tokens: part(tokens, earlier.input + earlier.output),
      dollars: part(dollars, this.dollars(earlier) ?? 0),
    };
  }

  /**
   * Reserves the maximum cost of a call; waits for other calls if they may return enough.
   *
   * @throws BudgetError if it exceeds the limit
   */
  async reserve(most: Cost): Promise<void> {
    for (;;) {
      const name = this.#passed(plus(plus(this.#spent, this.#reserved), most));
      if (name === null) break;
      if (this.#reserved.calls === 0 || this.#passed(plus(this.#spent, most)) !== null)
        throw this.#error(name);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    this.#reserved = plus(this.#reserved, most);
  }

  /** Replaces a reservation by the actual cost. */
  settle(most: Cost, used: Cost): void {
    this.#reserved = plus(this.#reserved, most, -1);
    this.#spent = plus(this.#spent, used);
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** The first limit that a total would exceed. */
  #passed(total: Cost): keyof ServerOptions["budget"] | null {
    const { calls = Infinity, tokens = Infinity, dollars = Infinity } = this.#limits;
    if (total.calls > calls) return "calls";
    if (total.input + total.output > tokens) return "tokens";
    return (this.dollars(total) ?? 0) > dollars ? "dollars" : null;
  }

  #error(name: keyof ServerOptions["budget"]): BudgetError {
    const { calls, input, output } = this.#spent;
    const dollars = this.dollars(this.#spent);
    const spent = {
      calls: `${calls} calls`,
      tokens: `${input + output} tokens`,
      dollars: `$${dollars?.toFixed(4)}`,
    }[name];
    return new BudgetError(
      "budget-exhausted",
      `${this.where}.budget.${name}: ${this.#share()}the limit of ${this.limits[name]} leaves no room for another call, after ${spent}; ` +
        "raise it to continue",
    );
  }

  #share(): string {
    return this.#sharing === 1 ? "" : `this process's part (1 of ${this.#sharing}) of `;
  }
}
