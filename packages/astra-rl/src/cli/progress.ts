import type { Output } from "./output.js";

/** What stands on the line behind its name; or whole texts that say the same, the longest first. */
export type Fact = string | readonly string[];

export interface ProgressOptions {
  /** What is counted, such as "step". */
  unit: string;
  total: number;
  /** Parts that a narrow terminal does without, the first to go first: "rate", "left", or names of facts. */
  dispensable?: readonly string[];
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
  readonly #dispensable: readonly string[];
  readonly #now: () => number;
  #started: number;
  /** What was done before this process began. */
  #before = 0;
  #shown = -Infinity;

  constructor(
    output: Output,
    { unit, total, dispensable = ["rate", "left"], now = () => performance.now() }: ProgressOptions,
  ) {
    this.#dispensable = dispensable;
    this.#output = output;
    this.#unit = unit;
    this.#total = total;
    this.#now = now;
    this.#started = now();
  }

  /** Says that so much was done already: rate and time left are those of what is done from now on. */
  startFrom(done: number): void {
    this.#before = done;
    this.#started = this.#now();
  }

  /**
   * @param done how many are finished
   * @param facts shown behind the rate, such as { reward: "0.42" }
   */
  update(done: number, facts: Readonly<Record<string, Fact>> = {}): void {
    const time = this.#now();
    const interval = this.#output.isTerminal ? LIVE_INTERVAL : PLAIN_INTERVAL;
    if (done < this.#total && time - this.#shown < interval) return;
    this.#shown = time;
    const seconds = Math.max(time - this.#started, 1) / 1000;
    const parts = new Map<string, readonly string[]>();
    const own = done - this.#before;
    if (own > 0) {
      parts.set("rate", [rate(own / seconds, this.#unit)]);
      const rest = this.#total - done;
      const left = rest > 0 ? `${duration((seconds / own) * rest)} left` : `${duration(seconds)} in all`;
      parts.set("left", [left]);
    }
    for (const [name, value] of Object.entries(facts)) {
      parts.set(name, typeof value === "string" ? [`${name} ${value}`] : value);
    }
    this.#output.live(this.#fitting(`${done}/${this.#total}`, parts));
  }

  /** The longest line that fits: parts that it can do without go first, then all others are said more briefly. */
  #fitting(count: string, parts: Map<string, readonly string[]>): string {
    const line = (brevity: number, start = `${this.#unit} `) =>
      [
        `${start}${count}`,
        ...[...parts.values()].map((texts) => texts[Math.min(brevity, texts.length - 1)]!),
      ].join(" · ");
    const fits = (text: string) => !this.#output.isTerminal || Array.from(text).length < this.#output.columns;
    for (const name of this.#dispensable) {
      if (fits(line(0))) break;
      parts.delete(name);
    }
    const briefest = Math.max(0, ...[...parts.values()].map((texts) => texts.length - 1));
    for (let brevity = 0; brevity <= briefest; brevity += 1) {
      if (fits(line(brevity))) return line(brevity);
    }
    return line(briefest, "");
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
