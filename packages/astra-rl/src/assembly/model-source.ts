import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { DEFAULT_TYPES, EMBEDDED } from "../configuration/index.js";

// The same relative path from src/assembly and dist/assembly.
const WORLD = new URL("../../world/", import.meta.url);

/**
 * The configuration of the demo. Some algorithms have their own, because their betas differ, and so has the chat model with the
 * default algorithm. With `novelty`, the one that rewards novelty.
 */
export function embeddedConfigurationPath(
  algorithm?: string,
  { chat = false, novelty = false } = {},
): string {
  const isDefault = algorithm === undefined || algorithm === DEFAULT_TYPES.algorithm;
  const variant = novelty ? "novelty" : chat && isDefault ? "chat" : algorithm;
  const own = fileURLToPath(new URL(`demo-${variant}.yaml`, WORLD));
  return variant !== undefined && existsSync(own) ? own : fileURLToPath(new URL("demo.yaml", WORLD));
}

/** Whether a model is included in the package. */
export const isEmbedded = (model: string): boolean => model.startsWith(`${EMBEDDED}:`);

/** What to load for a model name: the folder of an embedded model; other names unchanged. */
export function modelSource(model: string): string {
  if (!isEmbedded(model)) return model;
  return fileURLToPath(new URL(`${model.slice(EMBEDDED.length + 1)}/`, WORLD));
}
