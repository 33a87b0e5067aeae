import { existsSync } from "node:fs";
import { Option } from "@commander-js/extra-typings";
import { isModelId, type HubOptions } from "@astra-rl/lm";
import { UsageError, deviceSchema } from "@astra-rl/base";
import { checkWindows } from "../assemble/index.js";
import {
  configuredModels,
  parseOverride,
  readConfiguration,
  type Configuration,
  type Override,
} from "../configuration/index.js";
import { checked, repeated } from "../program/option-values.js";
import type { Output } from "../program/output.js";

export const deviceOption = () =>
  new Option("--device <name>", "cpu, cuda or cuda:N").default("cpu").argParser(checked(deviceSchema));

/** `--dtype NAME`: the dtype of a model that is not trained. */
export const dtypeOption = () =>
  new Option("--dtype <name>", "number format of the weights")
    .choices(["float32", "bfloat16"])
    .default("float32" as const);

/** `--set a.b=c`, which may be repeated. */
export const setOption = () =>
  new Option(
    "--set <key=value>",
    "replace a value of the configuration, such as training.learningRate=1e-5; repeatable",
  ).argParser(repeated(parseOverride));

/** `--tester MODEL`, replaces the configured tester. */
export const testerOption = () =>
  new Option("--tester <model>", "replaces models.tester, for example by a checkpoint folder of a run");

/**
 * Reads the configuration of a command, checks that messages fit the models' context windows, and notes which
 * models come from the hub.
 *
 * @throws UsageError for a mistake in the file or in an option
 */
export async function readCommandConfiguration(
  path: string,
  {
    set = [],
    tester,
    trains = false,
  }: { set?: readonly Override[] | undefined; tester?: string | undefined; trains?: boolean },
  output: Output,
): Promise<Configuration> {
  if (tester?.trim() === "")
    throw new UsageError("empty", '--tester "": must name a folder or a hub id, got nothing');
  const ofTester = tester === undefined ? [] : [parseOverride(`models.tester=${JSON.stringify(tester)}`)];
  const configuration = await readConfiguration(path, { overrides: [...set, ...ofTester], trains });
  checkWindows(configuration);
  for (const { path: keys, model } of configuredModels(configuration)) {
    noteHubModel(`models.${keys.join(".")}`, model, output);
  }
  return configuration;
}

/**
 * Notes that a model is loaded from the hub, because a mistyped folder may look like a hub id.
 *
 * @param where the key or option that names the model
 */
export function noteHubModel(where: string, model: string, output: Output): void {
  if (!isModelId(model) || existsSync(model)) return;
  output.note(`${where}: the folder ${model} does not exist, so the model is loaded from the hub`);
}

/** Shows the progress of downloads from the hub. */
export function downloadNotes(output: Output): HubOptions {
  return {
    onProgress: ({ file, received, total }) =>
      output.live(`fetching ${file}: ${(received / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB`),
    onWarning: (sentence) => output.alert(sentence),
  };
}
