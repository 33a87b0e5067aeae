import type { Engine } from "./engine.js";

const BUCKETS = [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300];

class Histogram {
  readonly #counts = BUCKETS.map(() => 0);
  #sum = 0;
  #count = 0;

  observe(seconds: number): void {
    BUCKETS.forEach((limit, at) => {
      if (seconds <= limit) this.#counts[at]! += 1;
    });
    this.#sum += seconds;
    this.#count += 1;
  }

  lines(name: string, help: string): string[] {
    return [
      `# HELP ${name} ${help}`,
      `# TYPE ${name} histogram`,
      ...BUCKETS.map((limit, at) => `${name}_bucket{le="${limit}"} ${this.#counts[at]}`),
      `${name}_bucket{le="+Inf"} ${this.#count}`,
      `${name}_sum ${this.#sum}`,
      `${name}_count ${this.#count}`,
    ];
  }
}

/** A server's metrics, in the text format of Prometheus. */
export class Metrics {
  readonly firstToken = new Histogram();
  readonly duration = new Histogram();
  /** By endpoint and status. */
  readonly #requests = new Map<string, number>();

  count(endpoint: string, status: number): void {
    const name = `endpoint="${endpoint}",status="${status}"`;
    this.#requests.set(name, (this.#requests.get(name) ?? 0) + 1);
  }

  text(engine: Engine): string {
    const sum = (of: (batch: Engine["batches"][number]) => number) =>
      engine.batches.reduce((total, batch) => total + of(batch), 0);
    const single = (name: string, type: string, help: string, value: number) => [
      `# HELP ${name} ${help}`,
      `# TYPE ${name} ${type}`,
      `${name} ${value}`,
    ];
    const lines = [
      "# HELP astra_requests_total Requests that were answered.",
      "# TYPE astra_requests_total counter",
      ...[...this.#requests].map(([labels, count]) => `astra_requests_total{${labels}} ${count}`),
      ...single(
        "astra_prompt_tokens_total",
        "counter",
        "Tokens of given texts that were read.",
        sum(({ work }) => work.tokensRead),
      ),
      ...single(
        "astra_reused_tokens_total",
        "counter",
        "Tokens of given texts that were in the cache.",
        sum(({ tokensReused }) => tokensReused),
      ),
      ...single(
        "astra_generated_tokens_total",
        "counter",
        "Sampled tokens.",
        sum(({ work }) => work.tokensGenerated),
      ),
      ...single("astra_sequences_running", "gauge", "Sequences in progress.", engine.running),
      ...single("astra_sequences_waiting", "gauge", "Sequences that wait for a row.", engine.waiting),
      ...single(
        "astra_cache_bytes",
        "gauge",
        "Memory of the key/value cache.",
        sum(({ cacheBytes }) => cacheBytes),
      ),
      ...this.firstToken.lines(
        "astra_first_token_seconds",
        "From a request to the first token of its answer.",
      ),
      ...this.duration.lines("astra_request_seconds", "From a request to the end of its answer."),
    ];
    return `${lines.join("\n")}\n`;
  }
}
