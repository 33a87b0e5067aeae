import { existsSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { UsageError, writeFileAtomic, objectOption, parseOptions } from "@astra-rl/base";
import { z } from "zod";
import {
  defineKind,
  scalarsOf,
  type LoggedRun,
  type LoggedValues,
  type MetricsLogger,
} from "@astra-rl/method";

/** The part of `@wandb/sdk` that is used. */
export interface WandbSdk {
  init(options: Record<string, unknown>): Promise<WandbRun>;
}

export interface WandbRun {
  log(values: Record<string, unknown>, step?: number): void;
  finish(code?: number): Promise<void>;
}

const FILE = "wandb.json";
const PACKAGE = "@wandb/sdk";

const options = z.strictObject({
  project: z.string().min(1).default("astra-rl").describe("Name of the project"),
  entity: z.string().min(1).optional().describe("Team or user. Default: that of the API key"),
  runName: z.string().min(1).optional().describe("Name of the run. Default: the run folder's name"),
});

const codeOptions = options.extend({
  /** Default: the installed `@wandb/sdk`. */
  sdk: objectOption<WandbSdk>(
    "must be what @wandb/sdk exports (an object with the method init)",
    "init",
  ).optional(),
});

export type WandbLoggerOptions = z.input<typeof codeOptions>;

/**
 * Logs to Weights & Biases through the optional package `@wandb/sdk`, with the key in `WANDB_API_KEY`.
 *
 * The package cannot append to another process's run, so a resumed run creates a new W&B run. `wandb.json` in the run
 * folder stores the last logged step, so that no step is logged twice.
 */
export class WandbLogger implements MetricsLogger {
  readonly name = "wandb";
  readonly #options: z.output<typeof codeOptions>;
  #run: WandbRun | null = null;
  #file: string | null = null;
  #lastStep = 0;

  constructor(given: WandbLoggerOptions = {}) {
    this.#options = parseOptions("WandbLogger", codeOptions, given);
  }

  /** @throws UsageError if the package is not installed or there is no key */
  async open({ folder, nextStep, configuration }: LoggedRun): Promise<void> {
    const { project, entity, runName, sdk = await installedSdk() } = this.#options;
    this.#file = folder === null ? null : join(folder, FILE);
    this.#lastStep = nextStep > 1 && this.#file !== null ? lastStepIn(this.#file) : 0;
    const first = Math.max(nextStep, this.#lastStep + 1);
    const name = runName ?? (folder === null ? undefined : basename(folder));
    this.#run = await sdk.init({
      project,
      config: configuration,
      ...(entity === undefined ? {} : { entity }),
      ...(name === undefined ? {} : { name: first === 1 ? name : `${name} from step ${first}` }),
    });
  }

  log(step: number, values: LoggedValues): void {
    if (step <= this.#lastStep) return;
    const { step: _, version: __, ...numbers } = scalarsOf(values);
    this.#run!.log(numbers, step);
    this.#lastStep = step;
    if (this.#file === null) return;
    writeFileAtomic(this.#file, [`${JSON.stringify({ lastStep: step, version: 1 })}\n`]);
  }

  async close(outcome: "finished" | "failed"): Promise<void> {
    await this.#run?.finish(outcome === "finished" ? 0 : 1);
    this.#run = null;
  }
}

/** Imports the package from where this package or the working directory finds it. */
async function installedSdk(): Promise<WandbSdk> {
  if (process.env["WANDB_MODE"] === "offline") {
    throw new UsageError(
      "offline-unsupported",
      `logger wandb: the package ${PACKAGE} cannot work offline; unset WANDB_MODE, or log with tensorboard or jsonl instead`,
    );
  }
  let module: { default?: unknown };
  try {
    // Not a literal, so that compilers and bundlers do not require the optional package.
    const name: string = PACKAGE;
    module = (await import(name)) as { default?: unknown };
  } catch (cause) {
    throw new UsageError(
      "package-not-found",
      `logger wandb: the package ${PACKAGE} is not installed; install it with "npm install ${PACKAGE}", or leave the ` +
        "logger out",
      { cause },
    );
  }
  if (!process.env["WANDB_API_KEY"]) {
    throw new UsageError(
      "unset-variable",
      "logger wandb: set the environment variable WANDB_API_KEY to the key of your account",
    );
  }
  return (module.default ?? module) as WandbSdk;
}

function lastStepIn(file: string): number {
  if (!existsSync(file)) return 0;
  try {
    const { lastStep } = JSON.parse(readFileSync(file, "utf8")) as { lastStep?: unknown };
    return typeof lastStep === "number" ? lastStep : 0;
  } catch {
    return 0;
  }
}

export const wandbKind = defineKind({
  role: "logger",
  name: "wandb",
  summary: "Logs to a run on Weights & Biases, through the package @wandb/sdk, which must be installed",
  schema: options,
  make: (chosen) => new WandbLogger(chosen),
});
