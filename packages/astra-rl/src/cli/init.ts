import { existsSync } from "node:fs";
import { dirname, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { Command } from "@commander-js/extra-typings";
import { UsageError, writeFileAtomic } from "@astra-rl/torch";
import { configurationTemplate } from "../configuration/index.js";
import { createOutput, type Streams } from "./output.js";

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
      writeFileAtomic(file, [configurationTemplate({ schema, values })]);
      output.note(`Wrote ${file}. Set models.tester and models.target, then: astra-rl train ${file}`);
    });
}
