import { existsSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { UsageError, writeFileAtomic, hasMethods, parseOptions } from "@astra-rl/base";
import { z } from "zod";
import {
  defineKind,
  parametersOf,
  scalarsOf,
  type LoggedRun,
  type LoggedValues,
  type MetricsLogger,
} from "@astra-rl/method";

const FILE = "mlflow.json";
/** Limits that every MLflow store accepts: length of a parameter's value, and parameters per request. */
const LONGEST_VALUE = 500;
const MOST_PARAMETERS = 100;
/** Request timeout in milliseconds. */
const PATIENCE = 8_000;

const options = z.strictObject({
  trackingUri: z
    .string()
    .min(1)
    .optional()
    .describe("Address of the tracking server. Default: the environment variable MLFLOW_TRACKING_URI"),
  experiment: z
    .string()
    .min(1)
    .default("astra-rl")
    .describe("Name of the experiment, which is created if it does not exist"),
  runName: z.string().min(1).optional().describe("Name of the run. Default: the run folder's name"),
});

const codeOptions = options.extend({
  /** With `MLFLOW_TRACKING_URI`, `_TOKEN`, `_USERNAME` and `_PASSWORD`. */
  environment: z
    .custom<NodeJS.ProcessEnv>((value) => hasMethods(value, []), "must be an object")
    .default(process.env),
});

export type MLflowLoggerOptions = z.input<typeof codeOptions>;

/**
 * Logs to an MLflow tracking server through its REST API (mlflow.org/docs/latest/rest-api.html): the configuration as
 * parameters, the values of each step as metrics.
 *
 * `mlflow.json` in the run folder stores the MLflow run id. A resumed run continues that run after the server's last
 * step, because MLflow would store a repeated step twice.
 */
export class MLflowLogger implements MetricsLogger {
  readonly name = "mlflow";
  readonly #address: string;
  readonly #headers: Record<string, string>;
  readonly #experiment: string;
  readonly #runName: string | undefined;
  #runId: string | null = null;
  /** The last step on the server. */
  #lastStep = 0;

  /** @throws UsageError without an address */
  constructor(given: MLflowLoggerOptions = {}) {
    const { trackingUri, experiment, runName, environment } = parseOptions(
      "MLflowLogger",
      codeOptions,
      given,
    );
    const address = trackingUri ?? environment["MLFLOW_TRACKING_URI"] ?? "";
    if (!URL.canParse(address) || !/^https?:$/.test(new URL(address).protocol)) {
      throw new UsageError(
        "not-an-http-address",
        `MLflowLogger: trackingUri (or the variable MLFLOW_TRACKING_URI) must be an http(s) address, got ${JSON.stringify(address)}`,
      );
    }
    this.#address = address.replace(/\/+$/, "");
    this.#headers = { "content-type": "application/json", ...authorization(environment) };
    this.#experiment = experiment;
    this.#runName = runName;
  }

  async open({ folder, nextStep, configuration }: LoggedRun): Promise<void> {
    const file = folder === null ? null : join(folder, FILE);
    const known = nextStep > 1 && file !== null && existsSync(file) ? readRun(file) : null;
    if (known?.trackingUri === this.#address) {
      const { run } = (await this.#call("GET", "runs/get", { run_id: known.runId })) as {
        run?: { data?: { metrics?: { step?: unknown }[] } };
      };
      this.#lastStep = Math.max(0, ...(run?.data?.metrics ?? []).map(({ step }) => Number(step ?? 0)));
      await this.#call("POST", "runs/update", { run_id: known.runId, status: "RUNNING" });
      this.#runId = known.runId;
      return;
    }
    const name = this.#runName ?? (folder === null ? undefined : basename(folder));
    const answer = (await this.#call("POST", "runs/create", {
      experiment_id: await this.#experimentId(),
      start_time: Date.now(),
      run_name: name,
    })) as { run?: { info?: { run_id?: unknown } } };
    const runId = answer.run?.info?.run_id;
    if (typeof runId !== "string") throw new Error(`${this.#address} answered a run without an id`);
    const parameters = parametersOf(configuration).map(([key, value]) => {
      const text = typeof value === "string" ? value : JSON.stringify(value);
      return { key, value: text.slice(0, LONGEST_VALUE) };
    });
    for (let start = 0; start < parameters.length; start += MOST_PARAMETERS) {
      const params = parameters.slice(start, start + MOST_PARAMETERS);
      await this.#call("POST", "runs/log-batch", { run_id: runId, params });
    }
    if (file !== null) {
      const record = { trackingUri: this.#address, runId, version: 1 };
      writeFileAtomic(file, [`${JSON.stringify(record, null, 2)}\n`]);
    }
    this.#runId = runId;
  }

  async log(step: number, values: LoggedValues): Promise<void> {
    if (step <= this.#lastStep) return;
    const timestamp = Date.now();
    const metrics = Object.entries(scalarsOf(values))
      .filter(([key]) => key !== "step" && key !== "version")
      .map(([key, value]) => ({ key, value, timestamp, step }));
    await this.#call("POST", "runs/log-batch", { run_id: this.#runId, metrics });
    this.#lastStep = step;
  }

  async close(outcome: "finished" | "failed"): Promise<void> {
    const status = outcome === "finished" ? "FINISHED" : "FAILED";
    await this.#call("POST", "runs/update", { run_id: this.#runId, status, end_time: Date.now() });
  }

  async #experimentId(): Promise<unknown> {
    const name = this.#experiment;
    const found = (await this.#call("GET", "experiments/get-by-name", { experiment_name: name }, 404)) as {
      experiment?: { experiment_id?: unknown };
    } | null;
    if (found !== null) return found.experiment?.experiment_id;
    const made = (await this.#call("POST", "experiments/create", { name })) as { experiment_id?: unknown };
    return made.experiment_id;
  }

  /** @param missing the HTTP status that means "not found", for which null is returned */
  async #call(
    method: "GET" | "POST",
    endpoint: string,
    fields: Record<string, unknown>,
    missing?: number,
  ): Promise<unknown> {
    const url = new URL(`${this.#address}/api/2.0/mlflow/${endpoint}`);
    if (method === "GET") {
      for (const [key, value] of Object.entries(fields)) url.searchParams.set(key, String(value));
    }
    const response = await fetch(url, {
      method,
      headers: this.#headers,
      signal: AbortSignal.timeout(PATIENCE),
      ...(method === "POST" ? { body: JSON.stringify(fields) } : {}),
    });
    const text = await response.text();
    if (response.status === missing) return null;
    if (!response.ok) {
      throw new Error(`${this.#address} answered ${response.status} to ${endpoint}: ${text.slice(0, 200)}`);
    }
    return text === "" ? {} : (JSON.parse(text) as unknown);
  }
}

function authorization(environment: NodeJS.ProcessEnv): Record<string, string> {
  const token = environment["MLFLOW_TRACKING_TOKEN"];
  if (token) return { authorization: `Bearer ${token}` };
  const [user, password] = [environment["MLFLOW_TRACKING_USERNAME"], environment["MLFLOW_TRACKING_PASSWORD"]];
  if (!user || password === undefined) return {};
  return { authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` };
}

/** The MLflow run recorded in the file; null if the file is damaged. */
function readRun(file: string): { trackingUri: unknown; runId: string } | null {
  try {
    const { trackingUri, runId } = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    return typeof runId === "string" ? { trackingUri, runId } : null;
  } catch {
    return null;
  }
}

export const mlflowKind = defineKind({
  role: "logger",
  name: "mlflow",
  summary: "Logs to a run on an MLflow tracking server",
  schema: options,
  make: (chosen) => new MLflowLogger(chosen),
});
