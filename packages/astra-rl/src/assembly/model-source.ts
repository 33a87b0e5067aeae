import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { EMBEDDED } from "../configuration/index.js";

// The same relative place from src/run and from dist/run.
const WORLD = new URL("../../world/", import.meta.url);

/**
 * The configuration of the demo; an algorithm may have one of its own, since the betas of two losses differ. With `novelty`
 * it is the one that pays for novelty.
 */
export function embeddedConfigurationPath(algorithm?: string, { novelty = false } = {}): string {
  if (novelty) return fileURLToPath(new URL("demo-novelty.yaml", WORLD));
  const own = fileURLToPath(new URL(`demo-${algorithm}.yaml`, WORLD));
  return algorithm !== undefined && existsSync(own) ? own : fileURLToPath(new URL("demo.yaml", WORLD));
}

/** Whether a model comes with the package. */
export const isEmbedded = (model: string): boolean => model.startsWith(`${EMBEDDED}:`);

/** What to load for the name of a model: the folder of an embedded one; a folder or a hub id as it is given. */
export function modelSource(model: string): string {
  if (!isEmbedded(model)) return model;
  return fileURLToPath(new URL(`${model.slice(EMBEDDED.length + 1)}/`, WORLD));
}
