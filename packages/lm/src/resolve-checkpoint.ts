import { stat } from "node:fs/promises";
import { UsageError } from "@astra-rl/base";
import { downloadModel, parseModelId, type DownloadOptions, type SelectFiles } from "./hub/index.js";
import { TOKENIZER_FILES, VOCABULARIES } from "./tokenizer.js";
import { missingWeights, parseIndex, WEIGHT_FORMATS } from "./weight-files.js";

/** How a model id is fetched; the files and the revision are determined by the loader. */
export type HubOptions = Omit<DownloadOptions, "select" | "revision">;

/**
 * Returns the folder of a checkpoint or adapter, given as a folder or as a model id "owner/name", optionally with
 * "@revision". For an id, only the files needed for loading are fetched into the hub's cache.
 *
 * An existing folder takes precedence over an id of the same name. Anything that cannot be an id is returned unchanged,
 * so that loading reports a missing folder; a name without owner is treated as a mistyped folder and never sent to the
 * hub.
 *
 * @throws UsageError for an id whose repository cannot be fetched or has no supported weights
 */
export async function resolveCheckpoint(
  checkpoint: string,
  options: HubOptions & {
    /** Whether a repository without a tokenizer is refused. Default true. */
    needsTokenizer?: boolean;
  } = {},
): Promise<string> {
  const { needsTokenizer = true, ...hub } = options;
  return resolve(checkpoint, hub, checkpointFiles(checkpoint, needsTokenizer));
}

/**
 * Returns the folder of a tokenizer, given as a checkpoint's folder or model id: like `resolveCheckpoint`, but only the
 * tokenizer's files are fetched.
 */
export async function resolveTokenizer(source: string, options: HubOptions = {}): Promise<string> {
  return resolve(source, options, async (paths) => {
    // config.json determines the class of tokenizers whose own files do not.
    const files = [...TOKENIZER_FILES, "config.json"].filter((name) => paths.includes(name));
    if (VOCABULARIES.some((name) => files.includes(name))) return files;
    throw new UsageError(
      "missing-tokenizer",
      `${source}: a tokenizer needs ${VOCABULARIES.join(" or ")}, but the repository has none`,
    );
  });
}

async function resolve(source: string, options: HubOptions, select: SelectFiles): Promise<string> {
  if (!isModelId(source) || (await exists(source))) return source;
  try {
    return await downloadModel(source, { ...options, select });
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(error.rule, `${source}: there is no such folder; as a model id: ${error.message}`, {
      cause: error,
    });
  }
}

/**
 * True if the text has the form "owner/name" or "owner/name@revision", whether or not such a folder or model exists.
 */
export function isModelId(text: string): boolean {
  const [name = ""] = text.split("@");
  return name.split("/").length === 2 && parseModelId(text) !== null;
}

/** The files of a repository needed to load a checkpoint, or an adapter in PEFT's format. */
function checkpointFiles(where: string, needsTokenizer: boolean): SelectFiles {
  return async (paths, read) => {
    const there = (names: readonly string[]) => names.filter((name) => paths.includes(name));
    const tokenizer = there(TOKENIZER_FILES);
    const format = WEIGHT_FORMATS.find(({ single, index }) => there([single, index]).length > 0);
    const adapter = there(["adapter_config.json", "adapter_model.safetensors"]);
    if (format === undefined && adapter.length === 2) return [...adapter, ...tokenizer];

    // Refuse before gigabytes are fetched in vain.
    if (!paths.includes("config.json")) {
      throw new UsageError(
        "missing-configuration",
        `${where}: a checkpoint needs config.json, but the repository has none`,
      );
    }
    if (needsTokenizer && there(VOCABULARIES).length === 0) {
      throw new UsageError(
        "missing-tokenizer",
        `${where}: a checkpoint needs tokenizer.json, or the files of a vocabulary (${VOCABULARIES.slice(1).join(", ")}), ` +
          `but the repository has none`,
      );
    }
    if (format === undefined) throw new UsageError("missing-weights", missingWeights(where, paths));
    const files = [...there(["config.json", "generation_config.json"]), ...tokenizer];
    if (paths.includes(format.single)) return [...files, format.single];
    const shards = [
      ...new Set(parseIndex(await read(format.index), `${where}/${format.index}`, format).values()),
    ];
    const lost = shards.find((name) => !paths.includes(name));
    if (lost !== undefined) {
      throw new UsageError(
        "missing-shard",
        `${where}: ${format.index} names ${lost}, but the repository has no such file`,
      );
    }
    return [...files, format.index, ...shards];
  };
}

/** A path that cannot be checked for another reason counts as existing: loading it reports the reason. */
async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code !== "ENOENT" && code !== "ENOTDIR";
  }
}
