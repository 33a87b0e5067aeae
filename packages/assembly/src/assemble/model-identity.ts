import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileDigest } from "@astra-rl/base";
import { resolveCheckpoint, type HubOptions } from "@astra-rl/lm";
import type { ModelIdentity } from "@astra-rl/records";
import { modelSource } from "./model-source.js";

/** The files of a checkpoint that loading may use. */
const CHECKPOINT_FILE = /\.(json|safetensors|bin|txt|model|jinja)$/;

/**
 * Identifies a checkpoint by its files.
 *
 * @param model a folder, a model id, or `embedded:<name>`
 */
export async function modelIdentity(model: string, hub: HubOptions = {}): Promise<ModelIdentity> {
  // A tokenizer is not required here.
  const folder = await resolveCheckpoint(modelSource(model), { ...hub, needsTokenizer: false });
  return identityOf(model, folder, (name) => CHECKPOINT_FILE.test(name));
}

/** Identifies a model by those files of a folder that it reads. */
export function identityOf(model: string, folder: string, reads: (name: string) => boolean): ModelIdentity {
  const names = readdirSync(folder).filter(reads);
  const files: Record<string, string> = {};
  for (const name of names.sort()) files[name] = fileDigest(join(folder, name));
  return { model, files };
}
