import type { MetricsRecord } from "@astra-rl/records";
import { percent, plain } from "@astra-rl/report";
import type { Progress as TrainerProgress } from "@astra-rl/method";
import type { Output } from "../program/output.js";
import { numberOr, TrainingPanel } from "./training-panel.js";

export interface ProgressOptions {
  /** The counted unit, such as "step". */
  unit: string;
  total: number;
  /** Clock in milliseconds from any origin. Default: the process's monotonic clock. */
  now?: () => number;
}

// Without a terminal, lines are not overwritten: print one every few seconds.
const PLAIN_INTERVAL = 5000;
const LIVE_INTERVAL = 100;

/** A progress line: count, speed, ETA, and facts from the caller. */
export class Progress {
  readonly #output: Output;
  readonly #unit: string;
  readonly #total: number;
  readonly #now: () => number;
  #started: number;
  /** Count completed before this process started; null until known. */
  #before: number | null = null;
  #shown = -Infinity;
  /** The line above a panel; null where there is none. */
  #above: string | null = null;

  constructor(output: Output, { unit, total, now = () => performance.now() }: ProgressOptions) {
    this.#output = output;
    this.#unit = unit;
    this.#total = total;
    this.#now = now;
    this.#started = now();
  }

  /** Sets, once, the count completed before; speed and ETA exclude it. */
  startFrom(done: number): void {
    if (this.#before !== null) return;
    this.#before = done;
    this.#started = this.#now();
  }

  /**
   * @param done number completed
   * @param facts for example "reward 0.42", most important first; a terminal shows as many as fit on the line
   * @param panel lines that a terminal with room for them shows below, instead of the facts
   */
  update(done: number, facts: readonly string[] = [], panel: readonly string[] = []): void {
    const time = this.#now();
    const { isTerminal, columns } = this.#output;
    if (done < this.#total && time - this.#shown < (isTerminal ? LIVE_INTERVAL : PLAIN_INTERVAL)) return;
    this.#shown = time;
    const seconds = Math.max(time - this.#started, 1) / 1000;
    const own = done - (this.#before ?? 0);
    const rest = this.#total - done;
    const left = rest > 0 ? `${duration((seconds / own) * rest)} left` : `${duration(seconds)} in all`;
    const speed = own > 0 ? [rate(own / seconds, this.#unit), left] : [];
    let line = [`${this.#unit} ${done}/${this.#total}`, ...speed].join(" · ");
    const hasPanel = isTerminal && panel.length > 0 && this.#output.rows > panel.length + 3;
    for (const fact of hasPanel ? [] : facts) {
      const longer = `${line} · ${fact}`;
      if (!isTerminal || Array.from(longer).length < columns) line = longer;
    }
    this.#above = hasPanel ? line : null;
    this.#output.live(line, ...(hasPanel ? panel : []));
  }

  /** May be called again. */
  end(): void {
    if (this.#above !== null) this.#output.live(this.#above);
    this.#above = null;
    this.#output.endLive();
  }
}

/**
 * The progress of a training run: a panel on a terminal, a line of the most important facts otherwise or if there is no
 * room.
 *
 * @param options.spending cost of server calls so far, a line each
 * @param options.trainsTarget whether the trained model is a target: success is then that of nobody
 */
export function trainingProgress(
  output: Output,
  steps: number,
  {
    spending = () => [],
    trainsTarget = false,
  }: { spending?: () => readonly string[]; trainsTarget?: boolean } = {},
) {
  const progress = new Progress(output, { unit: "step", total: steps });
  let facts: string[] = [];
  const panel = new TrainingPanel(trainsTarget);
  return {
    /** After each step. */
    step: (record: MetricsRecord) => {
      progress.startFrom(record.step - 1);
      facts = trainsTarget ? targetFactsOf(record) : factsOf(record);
      panel.add(record);
      progress.update(record.step, facts, panel.lines(spending(), ""));
    },
    /** Within a step. */
    phase: ({ phase, done, total, step }: TrainerProgress) => {
      progress.startFrom(step - 1);
      const part = done === undefined || total === undefined ? "" : ` ${done}/${total}`;
      const now = `${phase}${part}`;
      progress.update(step - 1, [...facts, now], panel.lines(spending(), now));
    },
    end: () => progress.end(),
  };
}

function factsOf(record: MetricsRecord): string[] {
  const share = (key: string) => percent(numberOr(record[key]));
  const [distinct, turns] = [numberOr(record["probes/distinct"]), numberOr(record["turns/done"])];
  const isEvaluated = numberOr(record["evaluation/success_rate"]) !== null;
  return [
    `success ${share("success/rate")}`,
    `success by harmless probes ${share("success/harmless_probe_rate")}`,
    `reward ${plain(record["reward/mean"], 3)}`,
    ...(isEvaluated ? [`dev success ${share("evaluation/success_rate")}`] : []),
    `harmful probes ${share("harm/probe_rate")}`,
    `distinct probes ${distinct ?? "–"}/${turns ?? "–"}`,
    ...(isEvaluated
      ? [`dev success by harmless probes ${share("evaluation/harmless_probe_success_rate")}`]
      : []),
    `loss ${plain(record.loss, 3)}`,
  ];
}

function targetFactsOf(record: MetricsRecord): string[] {
  const [distinct, turns] = [numberOr(record["probes/distinct"]), numberOr(record["turns/done"])];
  return [
    `harmful answers ${percent(numberOr(record["harm/probe_rate"]))}`,
    `distinct answers ${distinct ?? "–"}/${turns ?? "–"}`,
    `reward ${plain(record["reward/mean"], 3)}`,
    `loss ${plain(record.loss, 3)}`,
  ];
}

function rate(perSecond: number, unit: string): string {
  return perSecond >= 1 ? `${perSecond.toFixed(1)} ${unit}s/s` : `${(1 / perSecond).toFixed(1)} s/${unit}`;
}

/** Formats "12 s", "3 min 05 s", "2 h 07 min". */
export function duration(seconds: number): string {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const pad = (value: number) => String(value).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} min`;
}
