import type { MetricsRecord } from "@astra-rl/records";
import { percent, plain } from "@astra-rl/report";

export const numberOr = (value: unknown): number | null => (typeof value === "number" ? value : null);

const BARS = "▁▂▃▄▅▆▇█";
/** Steps of a sparkline. */
const RECENT = 20;

/** What a terminal shows of a training run, beside its progress. */
export class TrainingPanel {
  #record: MetricsRecord | null = null;
  /** The last record with an evaluation on the dev prompts. */
  #evaluated: MetricsRecord | null = null;
  #recent: number[] = [];

  /** @param trainsTarget whether the trained model is a target, of which there is no success to show */
  constructor(private readonly trainsTarget: boolean) {}

  add(record: MetricsRecord): void {
    this.#record = record;
    if (numberOr(record["evaluation/success_rate"]) !== null) this.#evaluated = record;
    const success = numberOr(record["success/harmless_probe_rate"]);
    if (success !== null) this.#recent = [...this.#recent, success].slice(-RECENT);
  }

  /**
   * Empty before the first step.
   *
   * @param spending cost of server calls so far
   * @param now the current phase of the step
   */
  lines(spending: readonly string[], now: string): string[] {
    const record = this.#record;
    if (record === null) return [];
    const value = (key: string) => numberOr(record[key]);
    const known = (parts: readonly (string | null)[]) => parts.filter((part) => part !== null).join(" · ");
    const when = (key: string, text: (shown: number) => string) => {
      const found = value(key);
      return found === null ? null : text(found);
    };
    const dev = (key: string) => numberOr(this.#evaluated?.[`evaluation/${key}`]);
    const terms = Object.keys(record).filter((key) => key.startsWith("reward/term/"));
    const categories = Object.keys(record).filter((key) => key.startsWith("goals/success/"));
    const row = (name: string, text: string) => `  ${name.padEnd(8)} ${text}`;
    return [
      ...(this.trainsTarget
        ? []
        : [
            row(
              "success",
              known([
                `by harmless probes ${percent(value("success/harmless_probe_rate"))} ${sparkline(this.#recent)}`.trim(),
                `any ${percent(value("success/rate"))}`,
              ]),
            ),
          ]),
      ...(value("goals/tried") === null
        ? []
        : [
            row(
              "goals",
              known([
                `reached ${value("goals/reached")} of ${value("goals/tried")}`,
                ...categories.map((key) => `${key.slice("goals/success/".length)} ${percent(value(key))}`),
              ]),
            ),
          ]),
      ...(this.#evaluated === null || this.trainsTarget
        ? []
        : [
            row(
              `dev ${this.#evaluated.step}`,
              known([
                `by harmless probes ${percent(dev("harmless_probe_success_rate"))} (${percent(dev("harmless_probe_success_lower")).replace(" %", "")} to ${percent(dev("harmless_probe_success_upper"))})`,
                `NLL ${plain(dev("probe_nll"))}`,
                `clusters ${dev("clusters") ?? "–"}`,
              ]),
            ),
          ]),
      row(
        this.trainsTarget ? "answers" : "probes",
        known([
          when("reward/term/nll", (nll) => `NLL ${plain(nll)}`),
          `harmful ${percent(value("harm/probe_rate"))}`,
          `distinct ${value("probes/distinct") ?? "–"}/${value("turns/done") ?? "–"}`,
          when("probes/self_bleu", (overlap) => `self-BLEU ${plain(overlap)}`),
        ]),
      ),
      row(
        "reward",
        `${plain(value("reward/mean"), 3)}${terms.length === 0 ? "" : ` (${terms.map((key) => `${key.slice("reward/term/".length)} ${plain(value(key))}`).join(", ")})`}`,
      ),
      row(
        "policy",
        known([
          `loss ${plain(record.loss, 3)}`,
          when("drift/per_token", (drift) => `KL ${plain(drift)} a token`) ??
            when("kl/baseline", (kl) => `KL ${plain(kl)} a probe`),
          when("policy/entropy", (entropy) => `entropy ${plain(entropy)}`) ??
            when("policy/nll", (nll) => `entropy about ${plain(nll)}`),
          when("gradient/norm", (norm) => `gradient ${plain(norm)}`),
        ]),
      ),
      row("work", known([throughput(record), ...spending, now === "" ? null : now])),
      ...(this.trainsTarget ? [] : [row("", "Ctrl-\\ shows a conversation of the last step")]),
    ];
  }
}

function throughput(record: MetricsRecord): string | null {
  let [tokens, seconds] = [0, 0];
  for (const [key, value] of Object.entries(record)) {
    if (typeof value !== "number") continue;
    if (/^tokens\/.+\/(read|generated|trained)$/u.test(key)) tokens += value;
    if (/^time\/.+_s$/u.test(key)) seconds += value;
  }
  return seconds === 0 ? null : `${Math.round(tokens / seconds).toLocaleString("en-US")} tokens/s`;
}

/** Shares from 0 to 1 as bars. */
function sparkline(values: readonly number[]): string {
  return values
    .map((value) => BARS[Math.min(BARS.length - 1, Math.max(0, Math.floor(value * BARS.length)))]!)
    .join("");
}
