import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { isAbsolute, join, resolve } from "node:path";
import type { LoadedCausalLM } from "../checkpoint.js";
import { readJsonIfThere } from "../json-fields.js";
import { isModelId } from "../resolve-checkpoint.js";

/**
 * Name under which an adapter records its base model: a folder's absolute path, so that the adapter can be
 * moved, or a model id with its revision.
 */
export function adapterBaseName(source: string | LoadedCausalLM): {
  baseModel: string;
  baseRevision?: string;
} {
  if (typeof source !== "string") return { baseModel: source.model.config.architecture };
  if (!isModelId(source) || existsSync(source)) return { baseModel: resolve(source) };
  const at = source.indexOf("@");
  return at < 0
    ? { baseModel: source }
    : { baseModel: source.slice(0, at), baseRevision: source.slice(at + 1) };
}

/**
 * The base model that an adapter folder names: a path, resolved relative to that folder, or a model id if no such folder
 * exists; null if there is no adapter.
 *
 * @throws UsageError if the adapter's configuration names no base model
 */
export async function adapterBase(folder: string): Promise<string | null> {
  const fields = await readJsonIfThere(join(folder, "adapter_config.json"));
  if (fields === null) return null;
  const base = fields.string("base_model_name_or_path", { fallback: "" });
  if (base === "")
    throw fields.error(
      "missing-base",
      "base_model_name_or_path",
      "the checkpoint that the adapter belongs to",
    );
  const local = isAbsolute(base) ? base : resolve(folder, base);
  if (!isModelId(base) || (await readdir(local).catch(() => null)) !== null) return local;
  const revision = fields.string("revision", { fallback: "" });
  return revision === "" ? base : `${base}@${revision}`;
}
