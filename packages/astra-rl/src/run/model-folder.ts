import { statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { downloadModel, parseModelId, type DownloadProgress } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/torch";
import { EMBEDDED } from "../configuration/index.js";

// The same relative place from src/run and from dist/run.
const WORLD = new URL("../../world/", import.meta.url);

/** The configuration of the demo. */
export const embeddedConfigurationPath = (): string => fileURLToPath(new URL("demo.yaml", WORLD));

export interface ModelFolderOptions {
  /** Told while files are fetched. */
  onProgress?: (progress: DownloadProgress) => void;
  /** Told once when the hub cannot be reached and a cached copy is used. */
  onWarning?: (sentence: string) => void;
}

/** What a causal model consists of; other formats of the same weights are not fetched. */
const isPartOfModel = (path: string) =>
  /^(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json$/.test(
    path,
  ) ||
  /^(merges\.txt|tokenizer\.model|chat_template\.jinja)$/.test(path) ||
  /^model(-\d+-of-\d+)?\.safetensors(\.index\.json)?$/.test(path);

/**
 * The folder of a model: an embedded one, an existing folder, or a hub id that is fetched into the hub's cache. An
 * existing folder goes before a hub id of the same spelling.
 *
 * @throws UsageError when it is none of them
 */
export async function resolveModelFolder(model: string, options: ModelFolderOptions = {}): Promise<string> {
  if (model.startsWith(`${EMBEDDED}:`))
    return fileURLToPath(new URL(`${model.slice(EMBEDDED.length + 1)}/`, WORLD));
  const isThere = statSync(model, { throwIfNoEntry: false }) !== undefined;
  // A name without an owner is taken for a mistyped folder: it must not be sent anywhere.
  const mayBeId = /^[^./~][^/]*\/[^/]+$/.test(model) && parseModelId(model) !== null;
  if (isThere || !mayBeId) return model;
  try {
    return await downloadModel(model, { ...options, select: (paths) => paths.filter(isPartOfModel) });
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(`${model}: there is no such folder; as a hub id: ${error.message}`, {
      cause: error,
    });
  }
}
