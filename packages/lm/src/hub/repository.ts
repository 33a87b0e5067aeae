import { existsSync, readFileSync, readdirSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { UsageError } from "@astra-rl/torch";
import {
  HubCache,
  checkDistinctPaths,
  checkRelativePath,
  hubCacheRoot,
  hubHome,
  ignoresCase,
  isCommit,
  titleOf,
  type Repository,
} from "./cache.js";
import { HubRequestError, downloadBlob, isFileSystemError, requestJson } from "./transfer.js";

/** Far above every index of shards. Limits files that are read into memory, so that it is never a model. */
const LONGEST_READ = 2 ** 28;

export interface HubSettings {
  /** Base address of the hub, without a trailing slash (`HF_ENDPOINT`). */
  endpoint: string;
  /** Folder that holds `models--…` folders (`HF_HUB_CACHE`, `HF_HOME`). */
  cacheRoot: string;
  /** Access token (`HF_TOKEN`, or the file written by the hub's login command); null = anonymous. Never logged. */
  token: string | null;
  /** `HF_HUB_OFFLINE`: no requests, only the cache. */
  offline: boolean;
}

/** The hub's settings from the environment, as in its Python libraries. */
export function hubSettings(environment: NodeJS.ProcessEnv = process.env): HubSettings {
  const truthy = (name: string) => /^(1|on|yes|true)$/i.test(environment[name] ?? "");
  const endpoint = (environment["HF_ENDPOINT"] || "https://huggingface.co").replace(/\/+$/, "");
  if (!URL.canParse(endpoint) || !/^https?:$/.test(new URL(endpoint).protocol)) {
    throw new UsageError(`hub: HF_ENDPOINT must be an http(s) address, got ${JSON.stringify(endpoint)}`);
  }
  return {
    endpoint,
    cacheRoot: hubCacheRoot(environment),
    token: readToken(environment, truthy("HF_HUB_DISABLE_IMPLICIT_TOKEN")),
    offline: truthy("HF_HUB_OFFLINE"),
  };
}

function readToken(environment: NodeJS.ProcessEnv, implicitDisabled: boolean): string | null {
  const fromEnvironment = environment["HF_TOKEN"]?.trim();
  if (fromEnvironment) return fromEnvironment;
  if (implicitDisabled) return null;
  const path = environment["HF_TOKEN_PATH"] || join(hubHome(environment), "token");
  try {
    return readFileSync(path, "utf8").trim() || null;
  } catch {
    return null;
  }
}

export interface RepositoryFile {
  /** Path in the repository, with "/" as separator. */
  path: string;
  /** Bytes. */
  size: number;
  /** Name of the blob in the cache: SHA-256 of large files, git's SHA-1 of small ones. */
  etag: string;
}

export interface DownloadProgress {
  file: string;
  /** Bytes of this file on disk. */
  received: number;
  total: number;
}

/**
 * Selects which of a repository's paths to download; throws {@link UsageError} if a required file is missing.
 *
 * @param read downloads one file immediately and returns its content, for selections that depend on it (an index of
 * shards)
 */
export type SelectFiles = (
  paths: readonly string[],
  read: (path: string) => Promise<Uint8Array>,
) => readonly string[] | Promise<readonly string[]>;

export interface DownloadOptions {
  /** Branch, tag or commit. Default "main", or what follows "@" in the id. */
  revision?: string;
  /** Selects among the repository's files. Default: all. */
  select?: SelectFiles;
  settings?: HubSettings;
  /** Files transferred at once. Default 4. */
  parallel?: number;
  onProgress?: (progress: DownloadProgress) => void;
  /** Called once if the hub cannot be reached and the cached snapshot is used instead. */
  onWarning?: (sentence: string) => void;
  /** Base of the exponential wait between attempts, milliseconds. Default 500. */
  retryDelay?: number;
  /** An attempt that receives nothing for this time is aborted and resumed, milliseconds. Default 30 000. */
  stallTimeout?: number;
}

/** `owner/name` or `name`, with an optional `@revision`; null if the text cannot be a model id. */
export function parseModelId(text: string): { modelId: string; revision: string | null } | null {
  const match = /^((?:[A-Za-z0-9][\w.-]*\/)?[A-Za-z0-9][\w.-]*)(?:@([\w./-]+))?$/.exec(text);
  if (!match) return null;
  const modelId = match[1]!;
  const revision = match[2] ?? null;
  const forbidden = /--|\.\.|\.git$/;
  if (forbidden.test(modelId) || modelId.length > 96 || (revision !== null && !isSafeRevision(revision)))
    return null;
  return { modelId, revision };
}

function isSafeRevision(revision: string): boolean {
  return revision.split("/").every((part) => part !== "" && part !== "." && part !== "..");
}

/**
 * Downloads a model's files into the cache and returns the snapshot's folder.
 *
 * Partial files are resumed, contents are verified (SHA-256 for large files, git's SHA-1 for small ones) before they
 * become visible, and a commit that is completely cached needs no request.
 *
 * @throws {UsageError} unknown, gated or private repository, no connection and nothing cached,
 *   content that does not match its checksum, full or read-only disk.
 */
export function downloadModel(id: string, options: DownloadOptions = {}): Promise<string> {
  return download("model", id, options);
}

/** Like `downloadModel`, for a dataset: "owner/name", optionally with "@revision". */
export function downloadDataset(id: string, options: DownloadOptions = {}): Promise<string> {
  return download("dataset", id, options);
}

async function download(kind: Repository["kind"], text: string, options: DownloadOptions): Promise<string> {
  const parsed = parseModelId(text);
  if (!parsed) {
    throw new UsageError(
      `hub: ${JSON.stringify(text)} is neither a folder nor a ${kind} id; an id looks like "owner/name" or "owner/name@revision"`,
    );
  }
  const repository: Repository = { kind, id: parsed.modelId };
  const title = titleOf(repository);
  const revision = options.revision ?? parsed.revision ?? "main";
  if (!isSafeRevision(revision)) {
    throw new UsageError(`hub: ${title}: not a revision: ${JSON.stringify(revision)}`);
  }
  const settings = options.settings ?? hubSettings();
  const select: SelectFiles = options.select ?? ((paths) => paths);
  const cache = new HubCache(settings.cacheRoot, repository);

  if (settings.offline) return cachedSnapshot(cache, revision, select, "HF_HUB_OFFLINE is set");

  let listing: { commit: string; files: RepositoryFile[] };
  try {
    listing = await listRepository(settings, repository, revision, options.retryDelay);
  } catch (error) {
    if (error instanceof HubRequestError && error.status === null && cache.readReference(revision) !== null) {
      const folder = await cachedSnapshot(cache, revision, select, "the hub cannot be reached");
      options.onWarning?.(`hub: ${error.message}; using the cached copy of "${repository.id}"`);
      return folder;
    }
    throw explain(error, repository, revision, settings);
  }

  const byPath = new Map(listing.files.map((file) => [file.path, file]));
  const bring = async (path: string) => {
    const file = byPath.get(path);
    if (!file) throw new Error(`internal: hub selection returned an unlisted path: ${path}`);
    const url = `${settings.endpoint}/${pathOf(repository)}/resolve/${listing.commit}/${encodePath(path)}`;
    try {
      await downloadBlob(cache, file, url, {
        token: settings.token,
        retryDelay: options.retryDelay,
        stallTimeout: options.stallTimeout,
        onBytes: (received) => options.onProgress?.({ file: path, received, total: file.size }),
      });
      await cache.link(listing.commit, path, file.etag);
    } catch (error) {
      if (!isFileSystemError(error)) throw error;
      throw new UsageError(
        `hub: ${title}: the file ${JSON.stringify(path)} cannot be put into the cache: ${storageRule(error)}`,
        { cause: error },
      );
    }
  };

  try {
    const selected = await select([...byPath.keys()], async (path) => {
      const size = byPath.get(path)?.size ?? 0;
      if (size > LONGEST_READ) {
        throw new UsageError(
          `hub: ${title}: ${JSON.stringify(path)} must have at most ${LONGEST_READ} bytes, but it is listed with ${size}`,
        );
      }
      await bring(path);
      return readFile(join(cache.snapshot(listing.commit), path));
    });
    const wanted = [...new Set(selected)];
    await mkdir(cache.folder, { recursive: true }).catch(() => undefined); // Reported below, on writing.
    checkDistinctPaths(repository, wanted, { ignoreCase: ignoresCase(cache.folder) });
    await inParallel(wanted, options.parallel ?? 4, bring);
    await cache.writeReference(revision, listing.commit).catch((error: unknown) => {
      const reason = isFileSystemError(error) ? error : (error as Error).cause;
      if (!isFileSystemError(reason)) throw error;
      throw new UsageError(
        `hub: ${title}: the revision "${revision}" cannot be noted in the cache: ${storageRule(reason)}`,
        { cause: error },
      );
    });
  } catch (error) {
    throw explain(error, repository, revision, settings);
  }
  return cache.snapshot(listing.commit);
}

/** Requests the commit of a revision and its files with sizes and checksums (one request). */
async function listRepository(
  settings: HubSettings,
  repository: Repository,
  revision: string,
  retryDelay?: number,
): Promise<{ commit: string; files: RepositoryFile[] }> {
  const url = `${settings.endpoint}/api/${repository.kind}s/${repository.id}/revision/${encodeURIComponent(revision)}?blobs=true`;
  const answer = await requestJson(url, { token: settings.token, retryDelay });
  const malformed = (what: string) =>
    new UsageError(
      `hub: the answer for ${titleOf(repository)} from ${settings.endpoint} is malformed: ${what}; is HF_ENDPOINT a model hub?`,
    );
  if (typeof answer !== "object" || answer === null) throw malformed("not an object");
  const { sha, siblings } = answer as { sha?: unknown; siblings?: unknown };
  if (typeof sha !== "string" || !isCommit(sha)) throw malformed(`"sha" is not a commit`);
  if (isCommit(revision) && sha !== revision) throw malformed(`"sha" is not the commit that was asked for`);
  if (!Array.isArray(siblings)) throw malformed(`"siblings" is not a list`);
  const files = siblings.map((sibling: unknown): RepositoryFile => {
    const { rfilename, size, blobId, lfs } = (sibling ?? {}) as Record<string, unknown>;
    if (typeof rfilename !== "string") throw malformed(`a sibling without "rfilename"`);
    checkRelativePath(repository, rfilename);
    const sha256 = (lfs as { sha256?: unknown } | undefined | null)?.sha256;
    const etag = sha256 ?? blobId;
    if (typeof etag !== "string" || !/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(etag)) {
      throw malformed(`no checksum for ${JSON.stringify(rfilename)}`);
    }
    if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 0) {
      throw malformed(`no size for ${JSON.stringify(rfilename)}`);
    }
    return { path: rfilename, size, etag };
  });
  const seen = new Set<string>();
  for (const { path } of files) {
    if (seen.has(path)) throw malformed(`${JSON.stringify(path)} is listed twice`);
    seen.add(path);
  }
  return { commit: sha, files };
}

async function cachedSnapshot(
  cache: HubCache,
  revision: string,
  select: SelectFiles,
  reason: string,
): Promise<string> {
  const commit = cache.readReference(revision);
  if (commit === null || !existsSync(cache.snapshot(commit))) {
    throw new UsageError(
      `hub: ${reason} and ${titleOf(cache.repository)} (revision "${revision}") is not in the cache ${cache.root}; ` +
        `go online once, or give the path of a local folder`,
    );
  }
  const folder = cache.snapshot(commit);
  try {
    const present = readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => !entry.isDirectory())
      .map((entry) => relative(folder, join(entry.parentPath, entry.name)).split("\\").join("/"))
      .filter((path) => cache.has(commit, path));
    const wanted = await select(present, (path) => readFile(join(folder, path)));
    const missing = wanted.find((path) => !present.includes(path));
    if (missing !== undefined) throw new UsageError(`${missing} is missing`);
  } catch (error) {
    throw new UsageError(
      `hub: ${reason} and the cached copy of "${cache.repository.id}" is incomplete (${(error as Error).message}); go online once`,
      { cause: error },
    );
  }
  return folder;
}

/** Turns a failed request into an error that says what to do. The token never appears in it. */
function explain(error: unknown, repository: Repository, revision: string, settings: HubSettings): unknown {
  if (!(error instanceof HubRequestError)) return error;
  const page = `${settings.endpoint}/${pathOf(repository)}`;
  const title = titleOf(repository);
  const sentence = (() => {
    switch (error.status) {
      case 401:
        return settings.token === null
          ? `${title} does not exist, or is private or gated: check the spelling, or set HF_TOKEN to a token of an account that may read it`
          : `the token was refused for ${title}, or it does not exist: check the spelling and that HF_TOKEN is valid`;
      case 403:
        return `${title} is gated: accept its conditions on ${page} with your account, and set HF_TOKEN to that account's token`;
      case 404:
        return `${title} has no revision "${revision}" with that file, or does not exist: check the spelling`;
      case null:
        return `${title} could not be fetched: ${error.message}; check the connection and HF_ENDPOINT, or give a local folder`;
      default:
        return `${title} could not be fetched: ${error.message}; try again later`;
    }
  })();
  return new UsageError(`hub: ${sentence}`, { cause: error });
}

function storageRule(error: NodeJS.ErrnoException): string {
  switch (error.code) {
    case "ENAMETOOLONG":
      return "its name is too long for this file system";
    case "EEXIST":
    case "EISDIR":
    case "ENOTDIR":
    case "ENOTEMPTY":
    case "ELOOP":
      return `something else of that name is in the way (${error.code} at ${error.path ?? "?"}); remove it and try again`;
    default:
      return error.message;
  }
}

/** Path of a repository on the hub. */
const pathOf = ({ kind, id }: Repository): string => (kind === "model" ? id : `${kind}s/${id}`);

function encodePath(path: string): string {
  return path.split("/").map(encodeURIComponent).join("/");
}

/** Runs `work` on every item, at most `limit` at once; after a failure, no new items start and running ones finish. */
async function inParallel<T>(
  items: readonly T[],
  limit: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  let next = 0;
  let failure: { error: unknown } | null = null;
  const worker = async () => {
    while (next < items.length && failure === null) {
      const item = items[next++]!;
      try {
        await work(item);
      } catch (error) {
        failure ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, Math.min(limit, items.length)) }, worker));
  if (failure !== null) throw (failure as { error: unknown }).error;
}
