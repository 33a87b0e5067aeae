import { existsSync } from "node:fs";
import { dirname, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { Command } from "@commander-js/extra-typings";
import { UsageError, writeFileAtomic } from "@astra-rl/torch";
import { configurationTemplate } from "../configuration/index.js";
import { isEmbedded } from "../run/index.js";
import { EMBEDDED_SCORER_LIMITS } from "../scorer/index.js";
import { createOutput, type Streams } from "./output.js";

const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

// The same relative place from src/cli and from dist/cli.
const SCHEMA = fileURLToPath(new URL("../../configuration.schema.json", import.meta.url));

/** `astra-rl init [FILE]`: a configuration with every key, explained. */
export function initCommand(streams: Streams) {
  return new Command("init")
    .description("Write a commented configuration file")
    .argument("[file]", "where to write it", "run.yaml")
    .option("--tester <model>", "folder or hub id of the tester", "embedded:chatter")
    .option("--target <model>", "folder or hub id of the target", "embedded:chatter")
    .option("--force", "overwrite an existing file", false)
    .option("--quiet", "errors only", false)
    .action((file, { tester, target, force, quiet }) => {
      const output = createOutput(streams, { quiet });
      if (!force && existsSync(file)) {
        throw new UsageError(`${file}: exists already; choose another name, or overwrite it with --force`);
      }
      const schema = relative(dirname(resolve(file)), SCHEMA)
        .split(sep)
        .join("/");
      const values = { "models.tester": tester, "models.target": target };
      const own = [tester, target].some((model) => !isEmbedded(model));
      const notes: Record<string, string> = own
        ? { scorer: `CHOOSE A SCORER. ${sentence(EMBEDDED_SCORER_LIMITS)}` }
        : {};
      writeFileAtomic(file, [configurationTemplate({ schema, values, notes })]);
      output.note(`Wrote ${file}. Set models.tester and models.target, then: astra-rl train ${file}`);
      if (own) output.alert(`${file}: choose a scorer before you train: ${EMBEDDED_SCORER_LIMITS}`);
    });
}
