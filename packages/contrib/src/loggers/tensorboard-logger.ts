import { join } from "node:path";
import { UsageError, parseOptions } from "@astra-rl/base";
import { z } from "zod";
import {
  defineKind,
  parametersOf,
  scalarsOf,
  type LoggedRun,
  type LoggedValues,
  type MetricsLogger,
} from "@astra-rl/method";
import { EventFile } from "./event-file.js";

const codeOptions = z.strictObject({ folder: z.string().min(1).optional() });

/**
 * Writes TensorBoard event files, with the configuration as hyperparameters. The file of a resumed run makes
 * TensorBoard discard the recomputed steps.
 */
export class TensorBoardLogger implements MetricsLogger {
  readonly name = "tensorboard";
  readonly #folder: string | null;
  #file: EventFile | null = null;

  /** @param given `folder` for the event files. Default: `tensorboard/` in the run folder */
  constructor(given: { folder?: string | undefined } = {}) {
    this.#folder = parseOptions("TensorBoardLogger", codeOptions, given).folder ?? null;
  }

  open({ folder, nextStep, configuration }: LoggedRun): void {
    const place = this.#folder ?? (folder === null ? null : join(folder, "tensorboard"));
    if (place === null) {
      throw new UsageError(
        "folder-required",
        "TensorBoardLogger: requires a folder, since this run has no run folder; give one",
      );
    }
    this.#file = new EventFile(place, nextStep);
    this.#file.addHyperparameters(parametersOf(configuration));
  }

  log(step: number, values: LoggedValues): void {
    const { step: _, version: __, ...numbers } = scalarsOf(values);
    this.#file!.add(step, numbers);
  }

  close(): void {
    this.#file?.close();
    this.#file = null;
  }
}

export const tensorBoardKind = defineKind({
  role: "logger",
  name: "tensorboard",
  summary: "Writes TensorBoard event files to tensorboard/ in the run folder",
  schema: z.strictObject({}),
  make: () => new TensorBoardLogger(),
});
