import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { isAbsolute, join, resolve } from "node:path";
import { UsageError } from "@astra-rl/torch";
import type { LoadedCausalLM } from "./checkpoint.js";
import { isModelId } from "./resolve-checkpoint.js";

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
  const path = join(folder, "adapter_config.json");
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch {
    return null;
  }
  let fields: { base_model_name_or_path?: unknown; revision?: unknown };
  try {
    fields = JSON.parse(text) as typeof fields;
  } catch (cause) {
    throw new UsageError(`${path}: is not JSON`, { cause });
  }
  const { base_model_name_or_path: base, revision } = fields;
  if (typeof base === "string" && base !== "") {
    const local = isAbsolute(base) ? base : resolve(folder, base);
    if (!isModelId(base) || (await readdir(local).catch(() => null)) !== null) return local;
    return typeof revision === "string" && revision !== "" ? `${base}@${revision}` : base;
  }
  throw new UsageError(
    `${path}: base_model_name_or_path must name the checkpoint that the adapter belongs to`,
  );
}
