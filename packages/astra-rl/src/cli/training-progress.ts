import type { MetricsRecord } from "../records/index.js";
import { percent, plain } from "../report/index.js";
import type { Progress as TrainerProgress } from "../training/index.js";
import type { Output } from "./output.js";
import { Progress } from "./progress.js";

const numberOr = (value: unknown): number | null => (typeof value === "number" ? value : null);

/**
 * Shows a training run: rate, time left, loss, reward, the success rate as far as it is known and, in parentheses, the
 * one with harmless probes only, and what the probes are like.
 */
export class TrainingProgress {
  readonly #progress: Progress;
  readonly #facts: Record<string, string> = {};
  /** null before anything was done here. */
  #done: number | null = null;

  constructor(output: Output, steps: number) {
    const dispensable = ["rate", "now", "loss", "reward", "left", "probes"];
    this.#progress = new Progress(output, { unit: "step", total: steps, dispensable });
  }

  step(record: MetricsRecord): void {
    this.#begin(record.step);
    this.#done = record.step;
    this.#facts.loss = plain(record.loss, 3);
    this.#facts.reward = plain(record["reward/mean"], 3);
    const harmless = percent(numberOr(record["success/harmless_probe_rate"]));
    this.#facts.success = `${percent(numberOr(record["success/rate"]))} (harmless ${harmless})`;
    this.#facts.probes = `${percent(numberOr(record["harm/probe_rate"]))} harmful, ${String(record["probes/distinct"] ?? "–")}/${String(record["turns/done"] ?? "–")} distinct`;
    const evaluated = numberOr(record["evaluation/success_rate"]);
    if (evaluated !== null) {
      const withHarmless = numberOr(record["evaluation/harmless_probe_success_rate"]);
      this.#facts.dev = `${percent(evaluated)} (${percent(withHarmless)})`;
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
