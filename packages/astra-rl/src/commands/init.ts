import { existsSync } from "node:fs";
import { dirname, isAbsolute, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { Command, Option } from "@commander-js/extra-typings";
import { isModelId } from "@astra-rl/lm";
import { UsageError, writeFileAtomic, didYouMean } from "@astra-rl/base";
import {
  isModuleReference,
  moduleParts,
  presetNames,
  isEmbedded,
  EMBEDDED_SCORER_LIMITS,
} from "@astra-rl/assembly";
import { loggerOf, noteHubModel } from "@astra-rl/assembly/command";
import { createOutput, type Output, type Streams } from "@astra-rl/assembly/program";
import { WIDE_TREES, type KindSection } from "@astra-rl/method";
import "@astra-rl/contrib/kinds";
import { configurationTemplate } from "../configuration-template.js";
import { presetConfiguration, relativePath } from "../preset-configuration.js";
import { askForScorer, chosenScorer, isComplete, OFFERED_SCORERS } from "../scorer-choice.js";

// The same relative path from src/commands and dist/commands.
const SCHEMA = fileURLToPath(new URL("../../configuration.schema.json", import.meta.url));

/** `astra-rl init [FILE]`: writes a configuration with every key, explained. */
export function initCommand(streams: Streams) {
  return new Command("init")
    .description("Write a configuration file with all options, explained in comments")
    .argument("[file]", 'file to write; "-" is standard output', "run.yaml")
    .option("--tester <model>", "folder or hub id of the tester (default: embedded:chatter)")
    .option(
      "--target <model>",
      "folder or hub id of the target, or ./file.js#name (default: embedded:chatter)",
    )
    .option(
      "--scorer <spec>",
      "the scorer: a kind such as detoxify, keyword:FILE.json, ./file.js#name or {type: …}",
    )
    .option("--preset <name>", `a published formulation: ${presetNames().join(", ")}`)
    .addOption(
      new Option("--set <key=value>")
        .argParser((text): never => {
          throw new UsageError(
            "inapplicable-option",
            `--set ${text}: init writes every key with its default; change it in the file, or give --set to train, eval or rollout`,
          );
        })
        .hideHelp(),
    )
    .option("--force", "overwrite an existing file", false)
    .option("--quiet", "errors only", false)
    .action(async (file, { tester, target, scorer: spec, preset, force, quiet }) => {
      const output = createOutput(streams, { quiet });
      const toFile = file !== "-";
      if (toFile && !force && existsSync(file)) {
        throw new UsageError(
          "file-exists",
          `${file}: exists already; choose another name, or overwrite it with --force`,
        );
      }
      const folder = toFile ? dirname(resolve(file)) : process.cwd();
      const schema = relative(folder, SCHEMA).split(sep).join("/");
      const given = Object.entries({ tester, target }).filter(([, model]) => model !== undefined);
      const models = Object.fromEntries(
        given.map(([role, model]) => [role, modelInFile(model!, `--${role}`, folder, output)]),
      ) as Partial<Record<"tester" | "target", string>>;
      if (preset !== undefined) knownPreset(preset);
      let scorer = spec === undefined ? null : await chosenScorer(spec, folder);
      const isOwn = Object.values(models).some((model) => !isEmbedded(model));
      const mustChoose = isOwn && preset === undefined;
      if (mustChoose && scorer === null && !quiet && process.stdin.isTTY && output.isTerminal) {
        scorer = await askForScorer(folder, output);
      }
      if (isOwn && scorer?.type === "embedded") output.alert(`${file}: ${EMBEDDED_SCORER_LIMITS}`);
      const text =
        preset === undefined
          ? template(schema, models, scorer, mustChoose)
          : presetConfiguration(preset, {
              folder,
              schema,
              models,
              ...(scorer === null ? {} : { scorer }),
            });
      if (!toFile) {
        output.result(text.trimEnd());
        return;
      }
      writeFileAtomic(file, [text]);
      const open =
        preset === undefined
          ? ROLES.filter((role) => models[role] === undefined).map((role) => `models.${role}`)
          : [];
      if (scorer === null ? mustChoose : !(await isComplete(scorer, folder))) open.push("scorer");
      const listed = [open.slice(0, -1).join(", "), ...open.slice(-1)].filter((part) => part !== "");
      const next = open.length === 0 ? "Next" : `Set ${listed.join(" and ")}, then`;
      // A formulation that trains its tester says how.
      const command = preset === undefined || /^training:/mu.test(text) ? "train" : "eval";
      output.note(`Wrote ${file}. ${next}: astra-rl ${command} ${file}`);
    });
}

const ROLES = ["tester", "target"] as const;

/**
 * A configuration with every key. For the user's own models, the user must choose a scorer: until then the file has
 * none and is invalid. The embedded models have their own scorer.
 */
function template(
  schema: string,
  { tester = "embedded:chatter", target = "embedded:chatter" }: Partial<Record<"tester" | "target", string>>,
  scorer: KindSection | null,
  mustChoose: boolean,
): string {
  const values: Record<string, unknown> = {
    ...WIDE_TREES,
    "models.tester": tester,
    "models.target": target,
  };
  if (scorer !== null) Object.assign(values, dottedValues("scorer", scorer));
  if (scorer !== null || !mustChoose) return configurationTemplate({ schema, values });
  const notes = {
    scorer:
      "CHOOSE A SCORER: it measures how harmful a text is, and the tester is trained to raise its score. " +
      "Write its type, and " +
      "uncomment its options.",
  };
  return configurationTemplate({ schema, values, notes, open: { scorer: OFFERED_SCORERS } });
}

/** A section and all values in it, by dotted path. */
function dottedValues(path: string, value: unknown): Record<string, unknown> {
  const values = { [path]: value };
  if (typeof value !== "object" || value === null || Array.isArray(value)) return values;
  const inner = Object.entries(value).map(([key, child]) => dottedValues(`${path}.${key}`, child));
  return Object.assign(values, ...inner) as Record<string, unknown>;
}

/** @throws UsageError that lists the presets */
function knownPreset(name: string): void {
  const names = presetNames();
  if (names.includes(name)) return;
  throw new UsageError(
    "unknown-choice",
    `--preset ${name}: unknown preset; available: ${names.join(", ")}${didYouMean(name, names)}`,
  );
}

/**
 * The model name to write in the file: paths in a file are relative to the file, those on the command line to the
 * working directory.
 *
 * @param option prefix of messages
 * @throws UsageError for a folder that does not exist
 */
function modelInFile(model: string, option: string, folder: string, output: Output): string {
  if (model.trim() === "")
    throw new UsageError("empty", `${option} "": must name a folder or a hub id, got nothing`);
  if (isEmbedded(model)) return model;
  if (option === "--target" && isModuleReference(model) && !existsSync(model)) {
    const { module: file, name } = moduleParts(model);
    return existsSync(file) && !isAbsolute(file) ? `${relativePath(folder, file)}#${name}` : model;
  }
  if (!existsSync(model)) {
    if (!isModelId(model))
      throw new UsageError("folder-not-found", `${option} ${model}: there is no such folder`);
    noteHubModel(option, model, loggerOf(output));
    return model;
  }
  if (isAbsolute(model)) return model;
  return relativePath(folder, model);
}
