import { extname, join } from "node:path";
import { downloadDataset, hubHome, hubSettings, type HubOptions } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/base";
import { fetchFile } from "./fetch-file.js";
import { NAMED_SETS, TOOLBOX_DATA, type NamedSet } from "./named-sets.js";
import { readPromptFile, type Prompt, type PromptFileOptions } from "./prompt-file.js";

/** Where prompt sets are downloaded from and cached. */
export interface DatasetSettings {
  /** Cache folder of the named sets. */
  cacheFolder: string;
  /** URL of the folder to download them from, with a trailing slash. */
  address: string;
  /** Reads only the cache, makes no requests. */
  offline: boolean;
}

export interface PromptSourceOptions extends PromptFileOptions {
  /** How hub files are downloaded, with progress callbacks. */
  hub?: HubOptions;
  settings?: DatasetSettings;
}

/**
 * Reads the settings from the environment: sets are cached next to the hub cache (`HF_HOME`), `HF_HUB_OFFLINE` is
 * respected, and `ASTRA_RL_DATASETS` may name another URL, such as a mirror.
 *
 * @throws UsageError for an invalid URL
 */
export function datasetSettings(environment: NodeJS.ProcessEnv = process.env): DatasetSettings {
  const address = environment["ASTRA_RL_DATASETS"] || TOOLBOX_DATA;
  if (!URL.canParse(address) || !/^https?:$/.test(new URL(address).protocol)) {
    throw new UsageError(
      "not-an-http-address",
      `ASTRA_RL_DATASETS must be an http(s) address, got ${JSON.stringify(address)}`,
    );
  }
  return {
    cacheFolder: join(hubHome(environment), "astra-rl", "datasets"),
    address: address.endsWith("/") ? address : `${address}/`,
    offline: hubSettings(environment).offline,
  };
}

/** `hf://datasets/owner/name/path`, optionally with `@revision` after the name. */
const HUB_FILE = /^hf:\/\/datasets\/([^/@]+\/[^/@]+(?:@[^/]+)?)\/(.+)$/;

/**
 * Parses the address of a hub file.
 *
 * @throws UsageError for any other form
 */
export function hubFile(source: string): { repository: string; file: string } {
  const [, repository, file] = HUB_FILE.exec(source) ?? [];
  if (repository !== undefined && file !== undefined && extname(file) !== "") return { repository, file };
  throw new UsageError(
    "invalid-hub-path",
    `${source}: a file of the hub is written hf://datasets/OWNER/NAME/PATH, such as ` +
      "hf://datasets/owner/name@main/data/train.parquet",
  );
}

/** Whether the source is a named set or a hub file rather than a local file. */
export function isRemotePrompts(source: string): boolean {
  return Object.hasOwn(NAMED_SETS, source) || source.startsWith("hf://");
}

/**
 * Reads prompts from a local file (see `readPromptFile`), a hub file (`hf://datasets/owner/name/data/train.parquet`),
 * or a named set (`convokit-reddit-train`). The last two are downloaded once and cached.
 *
 * @throws UsageError that names the source; if a download fails, with instructions for downloading it manually
 */
export async function readPrompts(source: string, options: PromptSourceOptions = {}): Promise<Prompt[]> {
  const path = await localPrompts(source, options);
  const { column } = options;
  if (column !== undefined) return readPromptFile(path, { column });
  const set: Partial<NamedSet> = Object.hasOwn(NAMED_SETS, source) ? NAMED_SETS[source]! : {};
  // A set with a column is that column alone, also beside goals.
  return readPromptFile(path, set.column === undefined ? {} : { column: set.column, goals: false });
}

/** The local file with the prompts of a source, downloaded if necessary. */
export async function localPrompts(
  source: string,
  { hub = {}, settings = datasetSettings() }: PromptSourceOptions = {},
): Promise<string> {
  const set = Object.hasOwn(NAMED_SETS, source) ? NAMED_SETS[source]! : null;
  if (set !== null) return fetchSet(source, set, settings, hub);
  if (!source.startsWith("hf://")) return source;
  const { repository, file } = hubFile(source);
  const folder = await downloadDataset(repository, {
    ...hub,
    select: (paths) => {
      if (paths.includes(file)) return [file];
      const readable = paths.filter((path) => /\.(json|jsonl|csv|txt|parquet|arrow)$/i.test(path));
      throw new UsageError(
        "file-not-found",
        `${source}: the dataset has no file ${file}; it has ${readable.slice(0, 20).join(", ") || "none that can be read"}`,
      );
    },
  });
  return join(folder, file);
}

async function fetchSet(
  name: string,
  { file, sha256 }: NamedSet,
  { cacheFolder, address, offline }: DatasetSettings,
  { retryDelay, stallTimeout }: HubOptions,
): Promise<string> {
  // One folder per file, so that each has its own digest file.
  const path = join(cacheFolder, file.replace(/\.[^.]+$/u, ""), file);
  await fetchFile(new URL(file, address).href, path, `prompt set "${name}"`, {
    offline,
    sha256,
    retryDelay,
    stallTimeout,
  });
  return path;
}
