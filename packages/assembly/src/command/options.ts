import { InvalidArgumentError, Option } from "@commander-js/extra-typings";
import type { HubOptions } from "@astra-rl/lm";
import type { Logger } from "@astra-rl/method";
import { UsageError, deviceSchema } from "@astra-rl/base";
import { CANARY_RULES, DOUBT_RULES, type DoubtRule } from "@astra-rl/records";
import {
  parseOverride,
  readConfiguration,
  type Configuration,
  type Override,
} from "../configuration/index.js";
import { checked, repeated } from "../program/option-values.js";
import type { Output } from "../program/output.js";
import { checkWindows, noteHubModels } from "../run/index.js";

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

/** The replaced value of `--tester`, if it is given. @throws UsageError for an empty name */
export function testerOverride(tester: string | undefined): Override[] {
  if (tester?.trim() === "")
    throw new UsageError("empty", '--tester "": must name a folder or a hub id, got nothing');
  return tester === undefined ? [] : [parseOverride(`models.tester=${JSON.stringify(tester)}`)];
}

/** The doubts that a user may accept. */
const ACCEPTABLE = Object.entries(DOUBT_RULES).flatMap(([rule, kind]) =>
  kind === "measurement" ? [rule as DoubtRule] : [],
);

/** `--accept RULES`, which may be repeated: doubts that do not prevent something. */
const acceptOption = (description: string) =>
  new Option("--accept <rules>", description)
    .default([] as readonly DoubtRule[])
    .argParser((text: string, before: readonly DoubtRule[]): readonly DoubtRule[] => {
      const rules = text.split(",").map((rule) => rule.trim());
      const unknown = rules.find((rule) => !(ACCEPTABLE as readonly string[]).includes(rule));
      if (unknown === undefined) return [...before, ...(rules as DoubtRule[])];
      throw new InvalidArgumentError(
        `Unknown rule ${JSON.stringify(unknown)}; available: ${ACCEPTABLE.join(", ")}.`,
      );
    });

/** `--accept RULES` of `gate`. */
export const acceptDoubtsOption = () =>
  acceptOption(`give a verdict despite these doubts about the measurement: ${ACCEPTABLE.join(", ")}`);

/** `--accept RULES` of commands that evaluate; takes the rules of a gate, so that one list serves both. */
export const acceptCanaryOption = () =>
  acceptOption(`evaluate although the canary failed by these rules: ${CANARY_RULES.join(", ")}`);

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
  const configuration = await readConfiguration(path, {
    overrides: [...set, ...testerOverride(tester)],
    trains,
  });
  checkWindows(configuration);
  noteHubModels(configuration, loggerOf(output));
  return configuration;
}

/** Shows what a run tells its logger. */
export const loggerOf = (output: Output): Logger => ({
  info: (line) => output.note(line),
  warn: (line) => output.alert(line),
});

/** Shows the progress of downloads from the hub. */
export function downloadNotes(output: Output): HubOptions {
  return {
    onProgress: ({ file, received, total }) =>
      output.live(`fetching ${file}: ${(received / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB`),
    onWarning: (sentence) => output.alert(sentence),
  };
}
