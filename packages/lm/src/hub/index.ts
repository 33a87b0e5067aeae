/**
 * Downloads models and datasets to local folders, through the hub's standard cache. Knows HTTP and files; must not know
 * what a checkpoint is: callers select the files.
 */
export {
  downloadDataset,
  downloadModel,
  hubSettings,
  parseModelId,
  type DownloadOptions,
  type DownloadProgress,
  type HubSettings,
  type SelectFiles,
} from "./repository.js";
export { hubCacheRoot, hubHome, type RepositoryFile } from "./cache.js";
