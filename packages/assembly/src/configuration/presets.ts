import { readdirSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

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
