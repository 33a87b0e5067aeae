import { dotted } from "../options/index.js";
import { leavesOf } from "./json-schema.js";
import type { Configuration } from "./schema.js";

/** A file that a configuration names, with the dotted key that names it. */
export interface ConfiguredFile {
  key: string;
  /** As it is configured: a path, or "embedded" for what comes with the package. */
  path: string;
}

/** Prompts, word lists and modules: every file whose content the run's results come from, models aside. */
export function configuredFiles(configuration: Configuration): ConfiguredFile[] {
  const plain = JSON.parse(JSON.stringify(configuration)) as Record<string, unknown>;
  const named = [...leavesOf(plain)].flatMap(({ path, value, schema }) =>
    schema["path"] === "file" && typeof value === "string" ? [{ key: dotted(path), path: value }] : [],
  );
  const modules = Object.keys(configuration.modules ?? {}).map((path) => ({ key: "modules", path }));
  return [...named, ...modules];
}
