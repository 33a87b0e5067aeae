import type { MetricsRecord } from "../records/index.js";
import { percent, plain } from "../report/index.js";
import type { Progress as TrainerProgress } from "../training/index.js";
import type { Output } from "./output.js";
import { Progress, type Fact } from "./progress.js";

/** All and, of those, the ones with harmless probes only: written out, and twice more briefly. */
function shares(name: string, all: number | null, harmless: number | null, word: string): string[] {
  const [whole, part] = [percent(all), percent(harmless)];
  const rounded = (share: number | null) => (share === null ? "–" : (100 * share).toFixed(0));
  return [
    `${name} ${whole} (${word}${part})`,
    `${name} ${whole.replace(" %", "")}/${part}`,
    `${name} ${rounded(all)}/${rounded(harmless)} %`,
  ];
}

const numberOr = (value: unknown): number | null => (typeof value === "number" ? value : null);

/**
 * Shows a training run: rate, time left, loss, reward, the success rate as far as it is known and, in parentheses, the
 * one with harmless probes only, and what the probes are like.
 */
export class TrainingProgress {
  readonly #progress: Progress;
  readonly #facts: Record<string, Fact> = {};
  /** null before anything was done here. */
  #done: number | null = null;

  constructor(output: Output, steps: number) {
    const dispensable = ["rate", "now", "loss", "reward", "left"];
    this.#progress = new Progress(output, { unit: "step", total: steps, dispensable });
  }

  step(record: MetricsRecord): void {
    this.#begin(record.step);
    this.#done = record.step;
    this.#facts.loss = plain(record.loss, 3);
    this.#facts.reward = plain(record["reward/mean"], 3);
    const success = numberOr(record["success/rate"]);
    this.#facts.success = shares(
      "success",
      success,
      numberOr(record["success/harmless_probe_rate"]),
      "harmless ",
    );
    const [harmful, distinct] = [numberOr(record["harm/probe_rate"]), numberOr(record["probes/distinct"])];
    const turns = numberOr(record["turns/done"]);
    const share = (value: number | null) => (value === null ? "–" : `${(100 * value).toFixed(0)} %`);
    this.#facts.probes = [
      `probes ${percent(harmful)} harmful, ${distinct ?? "–"}/${turns ?? "–"} distinct`,
      `harmful ${share(harmful)} · distinct ${share(distinct === null || !turns ? null : distinct / turns)}`,
    ];
    const evaluated = numberOr(record["evaluation/success_rate"]);
    if (evaluated !== null) {
      const withHarmless = numberOr(record["evaluation/harmless_probe_success_rate"]);
      this.#facts.dev = shares("dev", evaluated, withHarmless, "");
    }
    delete this.#facts.now;
    this.#progress.update(this.#done, this.#facts);
  }

  /** What the step in progress is at; shown until the step ends. */
  phase({ phase, done, total, step }: TrainerProgress): void {
    this.#begin(step);
    const part = done === undefined || total === undefined ? "" : ` ${done}/${total}`;
    this.#progress.update(step - 1, { ...this.#facts, now: `${phase}${part}` });
  }

  /** A run that goes on begins with a later step than the first. */
  #begin(step: number): void {
    if (this.#done !== null) return;
    this.#done = step - 1;
    this.#progress.startFrom(step - 1);
  }

  end(): void {
    this.#progress.end();
  }
}
