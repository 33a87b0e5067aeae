import { existsSync, readFileSync, readdirSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { UsageError } from "@astra-rl/base";
import { JsonFields } from "../json-fields.js";
import {
  HubCache,
  checkDistinctPaths,
  checkRelativePath,
  hubCacheRoot,
  hubHome,
  ignoresCase,
  isCommit,
  isPlainPath,
  titleOf,
  type Repository,
  type RepositoryFile,
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
    throw new UsageError(
      "not-an-http-address",
      `hub: HF_ENDPOINT must be an http(s) address, got ${JSON.stringify(endpoint)}`,
    );
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

interface Listing {
  commit: string;
  /** By path. */
  files: ReadonlyMap<string, RepositoryFile>;
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
  if (forbidden.test(modelId) || modelId.length > 96 || (revision !== null && !isPlainPath(revision)))
    return null;
  return { modelId, revision };
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
      "invalid-repository-id",
      `hub: ${JSON.stringify(text)} is neither a folder nor a ${kind} id; an id looks like "owner/name" or "owner/name@revision"`,
    );
  }
  const repository: Repository = { kind, id: parsed.modelId };
  const title = titleOf(repository);
  const revision = options.revision ?? parsed.revision ?? "main";
  if (!isPlainPath(revision)) {
    throw new UsageError("invalid-revision", `hub: ${title}: not a revision: ${JSON.stringify(revision)}`);
  }
  const settings = options.settings ?? hubSettings();
  const select: SelectFiles = options.select ?? ((paths) => paths);
  const cache = new HubCache(settings.cacheRoot, repository);

  if (settings.offline) return cachedSnapshot(cache, revision, select, "HF_HUB_OFFLINE is set");

  let listing: Listing;
  try {
    listing = await listRepository(settings, repository, revision, options.retryDelay);
  } catch (error) {
    const isUnreachable = error instanceof HubRequestError && error.failure.status === undefined;
    if (isUnreachable && cache.readReference(revision) !== null) {
      const folder = await cachedSnapshot(cache, revision, select, "the hub cannot be reached");
      options.onWarning?.(`hub: ${error.message}; using the cached copy of "${repository.id}"`);
      return folder;
    }
    throw explain(error, repository, revision, settings);
  }

  const { commit, files } = listing;
  const bring = async (path: string) => {
    const file = files.get(path);
    if (!file) throw new Error(`internal: hub selection returned an unlisted path: ${path}`);
    const url = `${settings.endpoint}/${pathOf(repository)}/resolve/${commit}/${encodePath(path)}`;
    try {
      await downloadBlob(cache, file, url, {
        token: settings.token,
        retryDelay: options.retryDelay,
        stallTimeout: options.stallTimeout,
        onBytes: (received) => options.onProgress?.({ file: path, received, total: file.size }),
      });
      await cache.link(commit, path, file.etag);
    } catch (error) {
      throw storageError(
        `${title}: the file ${JSON.stringify(path)} cannot be put into the cache`,
        error,
        error,
      );
    }
  };

  try {
    const selected = await select([...files.keys()], async (path) => {
      const size = files.get(path)?.size ?? 0;
      if (size > LONGEST_READ) {
        throw new UsageError(
          "too-large",
          `hub: ${title}: ${JSON.stringify(path)} must have at most ${LONGEST_READ} bytes, but it is listed with ${size}`,
        );
      }
      await bring(path);
      return readFile(join(cache.snapshot(commit), path));
    });
    const wanted = [...new Set(selected)];
    await mkdir(cache.folder, { recursive: true }).catch(() => undefined); // Reported below, on writing.
    checkDistinctPaths(repository, wanted, { ignoreCase: ignoresCase(cache.folder) });
    await inParallel(wanted, options.parallel ?? 4, bring);
    await cache.writeReference(revision, commit).catch((error: unknown) => {
      const reason = isFileSystemError(error) ? error : (error as Error).cause;
      throw storageError(
        `${title}: the revision "${revision}" cannot be recorded in the cache`,
        error,
        reason,
      );
    });
  } catch (error) {
    throw explain(error, repository, revision, settings);
  }
  return cache.snapshot(commit);
}

/** Requests the commit of a revision and its files with sizes and checksums (one request). */
async function listRepository(
  settings: HubSettings,
  repository: Repository,
  revision: string,
  retryDelay?: number,
): Promise<Listing> {
  const url = `${settings.endpoint}/api/${repository.kind}s/${repository.id}/revision/${encodeURIComponent(revision)}?blobs=true`;
  const answer = await requestJson(url, { token: settings.token, retryDelay });
  let listing: Listing;
  try {
    listing = readListing(answer, revision);
  } catch (cause) {
    if (!(cause instanceof UsageError)) throw cause;
    throw new UsageError(
      cause.rule,
      `hub: the answer for ${titleOf(repository)} from ${settings.endpoint} is malformed: ${cause.message}; ` +
        `is HF_ENDPOINT a model hub?`,
      { cause },
    );
  }
  for (const path of listing.files.keys()) checkRelativePath(repository, path);
  return listing;
}

function readListing(answer: unknown, revision: string): Listing {
  const fields = new JsonFields(answer, "the listing");
  const commit = fields.string("sha");
  if (!isCommit(commit)) throw fields.error("invalid-commit", "sha", "a commit");
  if (isCommit(revision) && commit !== revision)
    throw fields.error("other-commit", "sha", "the requested commit");
  const files = new Map<string, RepositoryFile>();
  for (const [index, sibling] of fields.list("siblings").entries()) {
    const file = new JsonFields(sibling, `${fields.inside("siblings")}[${index}]`);
    const path = file.string("rfilename");
    if (files.has(path)) throw new UsageError("duplicate-file", `${JSON.stringify(path)} is listed twice`);
    const [of, name] = file.has("lfs") ? [file.nested("lfs")!, "sha256"] : [file, "blobId"];
    const etag = of.string(name);
    if (!/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(etag)) throw of.error("invalid-checksum", name, "a checksum");
    files.set(path, { path, size: file.integer("size", { minimum: 0 }), etag });
  }
  return { commit, files };
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
      "not-cached",
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
    if (missing !== undefined) throw new UsageError("missing-file", `${missing} is missing`);
  } catch (error) {
    throw new UsageError(
      "incomplete-cache",
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
  const [rule, sentence] = ((): [rule: string, sentence: string] => {
    switch (error.failure.status) {
      case 401:
        return settings.token === null
          ? [
              "token-required",
              `${title} does not exist, or is private or gated: check the spelling, or set HF_TOKEN to a token of an account that may read it`,
            ]
          : [
              "token-refused",
              `the token was refused for ${title}, or it does not exist: check the spelling and that HF_TOKEN is valid`,
            ];
      case 403:
        return [
          "gated-repository",
          `${title} is gated: accept its conditions on ${page} with your account, and set HF_TOKEN to that account's token`,
        ];
      case 404:
        return [
          "repository-not-found",
          `${title} has no revision "${revision}" with that file, or does not exist: check the spelling`,
        ];
      case undefined:
        return [
          "hub-unreachable",
          `${title} could not be fetched: ${error.message}; check the connection and HF_ENDPOINT, or give a local folder`,
        ];
      default:
        return ["hub-failed", `${title} could not be fetched: ${error.message}; try again later`];
    }
  })();
  return new UsageError(rule, `hub: ${sentence}`, { cause: error });
}

/** The error with what to do, if its reason is an error of a file operation; otherwise the error itself. */
function storageError(what: string, error: unknown, reason: unknown): unknown {
  if (!isFileSystemError(reason)) return error;
  const { code = "", path = "?", message } = reason;
  const isInTheWay = ["EEXIST", "EISDIR", "ENOTDIR", "ENOTEMPTY", "ELOOP"].includes(code);
  const problem = isInTheWay
    ? `something else has that name (${code} at ${path}); remove it and try again`
    : code === "ENAMETOOLONG"
      ? "its name is too long for this file system"
      : message;
  return new UsageError(isInTheWay ? "name-taken" : "not-writable", `hub: ${what}: ${problem}`, {
    cause: error,
  });
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
  const waiting = [...items];
  const worker = async () => {
    while (waiting.length > 0) {
      await work(waiting.shift()!).catch((error: unknown) => {
        waiting.length = 0;
        throw error;
      });
    }
  };
  const results = await Promise.allSettled(Array.from({ length: Math.max(1, limit) }, worker));
  const failure = results.find((result) => result.status === "rejected");
  if (failure !== undefined) throw failure.reason;
}
