import { existsSync } from "node:fs";
import { dirname, isAbsolute, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { Command } from "@commander-js/extra-typings";
import { isModelId } from "@astra-rl/lm";
import { UsageError, writeFileAtomic } from "@astra-rl/torch";
import { configurationTemplate } from "../configuration/index.js";
import { isEmbedded } from "../run/index.js";
import { EMBEDDED_SCORER_LIMITS } from "../scorer/index.js";
import { createOutput, type Output, type Streams } from "./output.js";

const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

// The same relative place from src/cli and from dist/cli.
const SCHEMA = fileURLToPath(new URL("../../configuration.schema.json", import.meta.url));

/** `astra-rl init [FILE]`: a configuration with every key, explained. */
export function initCommand(streams: Streams) {
  return new Command("init")
    .description("Write a commented configuration file")
    .argument("[file]", 'where to write it; "-" is standard output', "run.yaml")
    .option("--tester <model>", "folder or hub id of the tester; without it, embedded:chatter")
    .option("--target <model>", "folder or hub id of the target; without it, embedded:chatter")
    .option("--force", "overwrite an existing file", false)
    .option("--quiet", "errors only", false)
    .action((file, { tester, target, force, quiet }) => {
      const output = createOutput(streams, { quiet });
      const toFile = file !== "-";
      if (toFile && !force && existsSync(file)) {
        throw new UsageError(`${file}: exists already; choose another name, or overwrite it with --force`);
      }
      const folder = toFile ? dirname(resolve(file)) : process.cwd();
      const schema = relative(folder, SCHEMA).split(sep).join("/");
      const models = { tester, target };
      const values: Record<string, string> = {};
      for (const role of ["tester", "target"] as const) {
        values[`models.${role}`] = modelInFile(
          models[role] ?? "embedded:chatter",
          `--${role}`,
          folder,
          output,
        );
      }
      const own = Object.values(values).some((model) => !isEmbedded(model));
      const notes: Record<string, string> = own
        ? { scorer: `CHOOSE A SCORER. ${sentence(EMBEDDED_SCORER_LIMITS)}` }
        : {};
      const text = configurationTemplate({ schema, values, notes });
      if (own) output.alert(`${file}: choose a scorer before you train: ${EMBEDDED_SCORER_LIMITS}`);
      if (!toFile) {
        output.result(text.trimEnd());
        return;
      }
      writeFileAtomic(file, [text]);
      const open = (["tester", "target"] as const).filter((role) => models[role] === undefined);
      const next =
        open.length === 0 ? "Next" : `Set ${open.map((role) => `models.${role}`).join(" and ")}, then`;
      output.note(`Wrote ${file}. ${next}: astra-rl train ${file}`);
    });
}

/**
 * A model as the file names it: paths in a file are relative to the file, those of the command line to where it is typed.
 *
 * @param option begins messages
 * @throws UsageError for a folder that is not there
 */
function modelInFile(model: string, option: string, folder: string, output: Output): string {
  if (model.trim() === "") throw new UsageError(`${option} "": must name a folder or a hub id, got nothing`);
  if (isEmbedded(model)) return model;
  if (!existsSync(model)) {
    if (!isModelId(model)) throw new UsageError(`${option} ${model}: there is no such folder`);
    output.note(`${option}: there is no folder ${model}, so it is a model of the hub`);
    return model;
  }
  if (isAbsolute(model)) return model;
  const path = relative(folder, resolve(model)).split(sep).join("/");
  // What begins so is never taken for a model of the hub.
  return path.startsWith(".") ? path : `./${path}`;
}
