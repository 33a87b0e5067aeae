import { readdirSync, readFileSync } from "node:fs";
import { dirname, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { parseDocument } from "yaml";
import type { KindSection } from "@astra-rl/method";
import { kindPlaces } from "./kind-places.js";
import { leavesOf } from "./json-schema.js";

// The same relative path from src/configuration and dist/configuration.
const FOLDER = fileURLToPath(new URL("../../presets/", import.meta.url));

/** Names of the included presets: configurations of published formulations. */
export function presetNames(): string[] {
  return readdirSync(FOLDER)
    .filter((file) => file.endsWith(".yaml"))
    .map((file) => file.slice(0, -".yaml".length))
    .sort();
}

/** The file of a preset. */
export const presetPath = (name: string): string => resolve(FOLDER, `${name}.yaml`);

export interface PresetOptions {
  /** The folder of the configuration; the preset's file paths are made relative to it. */
  folder: string;
  /** The schema reference for editors in the first line. */
  schema: string;
  /** Models that replace the preset's, as written in the file. */
  models: Readonly<Partial<Record<"tester" | "target", string>>>;
  /** A scorer that replaces the preset's. */
  scorer?: KindSection;
}

/** A preset as the text of a configuration file, including comments. */
export function presetConfiguration(name: string, { folder, schema, models, scorer }: PresetOptions): string {
  const path = presetPath(name);
  const document = parseDocument(readFileSync(path, "utf8"));
  const content = document.toJS() as Record<string, unknown>;
  kindPlaces(content);
  const own = new Set(readdirSync(FOLDER).map((name) => resolve(FOLDER, name)));
  for (const { path: keys, value, schema: leaf } of leavesOf(content)) {
    const file = resolve(dirname(path), String(value));
    if (leaf.path !== "file" || !own.has(file)) continue;
    document.setIn(keys, relativePath(folder, file));
  }
  for (const [role, model] of Object.entries(models)) document.setIn(["models", role], model);
  if (scorer !== undefined) document.set("scorer", document.createNode(scorer));
  const header = `# yaml-language-server: $schema=${schema}\n# Paths are relative to this file.\n`;
  return header + document.toString({ lineWidth: 0 });
}

/** The path of a file relative to `folder`. It begins with a dot, so that it is never taken for a hub model. */
export function relativePath(folder: string, path: string): string {
  const way = relative(folder, resolve(path)).split(sep).join("/");
  return way.startsWith(".") ? way : `./${way}`;
}
