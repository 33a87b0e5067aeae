import type { Output } from "./output.js";

export interface ProgressOptions {
  /** What is counted, such as "step". */
  unit: string;
  total: number;
  /** Milliseconds from any fixed moment. Default: the process's monotonic clock. */
  now?: () => number;
}

// Elsewhere than on a terminal, lines stay: one every so often is enough.
const PLAIN_INTERVAL = 5000;
const LIVE_INTERVAL = 100;

/** Shows how far something is: count, rate, time left, and whatever the caller adds. */
export class Progress {
  readonly #output: Output;
  readonly #unit: string;
  readonly #total: number;
  readonly #now: () => number;
  readonly #started: number;
  #shown = -Infinity;

  constructor(output: Output, { unit, total, now = () => performance.now() }: ProgressOptions) {
    this.#output = output;
    this.#unit = unit;
    this.#total = total;
    this.#now = now;
    this.#started = now();
  }

  /**
   * @param done how many are finished
   * @param facts shown behind the rate, such as { reward: "0.42" }
   */
  update(done: number, facts: Readonly<Record<string, string>> = {}): void {
    const time = this.#now();
    const interval = this.#output.isTerminal ? LIVE_INTERVAL : PLAIN_INTERVAL;
    if (done < this.#total && time - this.#shown < interval) return;
    this.#shown = time;
    const seconds = Math.max(time - this.#started, 1) / 1000;
    const parts = [`${this.#unit} ${done}/${this.#total}`];
    if (done > 0) {
      parts.push(rate(done / seconds, this.#unit));
      if (done < this.#total) parts.push(`${duration((seconds / done) * (this.#total - done))} left`);
      else parts.push(`${duration(seconds)} in all`);
    }
    for (const [name, value] of Object.entries(facts)) parts.push(`${name} ${value}`);
    this.#output.live(parts.join(" · "));
  }

  end(): void {
    this.#output.endLive();
  }
}

function rate(perSecond: number, unit: string): string {
  return perSecond >= 1 ? `${perSecond.toFixed(1)} ${unit}s/s` : `${(1 / perSecond).toFixed(1)} s/${unit}`;
}

/** Such as "12 s", "3 min 05 s", "2 h 07 min". */
export function duration(seconds: number): string {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const pad = (value: number) => String(value).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} min`;
}
