import { createHash } from "node:crypto";
import { createReadStream, existsSync } from "node:fs";
import { mkdir, open, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { dirname } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { diskError, UsageError } from "@astra-rl/base";
import { sizeOf, titleOf, type HubCache, type RepositoryFile } from "./cache.js";

interface Failure {
  /** Absent if there was no usable response (no connection, drops, stalls, damaged content). */
  status?: number;
  /** Whether another attempt may succeed. Default false. */
  isRetryable?: boolean;
  /** The delay that the server requested, milliseconds. */
  after?: number | null;
}

export class HubRequestError extends Error {
  override readonly name = "HubRequestError";

  constructor(
    message: string,
    readonly failure: Failure,
    cause?: unknown,
  ) {
    super(message, { cause });
  }
}

const retryable = (message: string, cause?: unknown) =>
  new HubRequestError(message, { isRetryable: true }, cause);

/**
 * Whether this is an error of a file operation: unlike connection errors it has a path, except for reads of an open
 * file.
 */
export function isFileSystemError(error: unknown): error is NodeJS.ErrnoException {
  if (!(error instanceof Error)) return false;
  const { code, path } = error as NodeJS.ErrnoException;
  return code !== undefined && (typeof path === "string" || ["EISDIR", "EIO"].includes(code));
}

const ATTEMPTS = 5;
const RETRY_DELAY = 500;
const STALL_TIMEOUT = 30_000;
/**
 * Maximum size of a listing in bytes: the largest repositories have some tens of thousands of files of a few hundred
 * bytes each.
 */
const LONGEST_ANSWER = 2 ** 26;
/** A server may ask for hours; above this limit, an error is reported instead of waiting. Milliseconds. */
const LONGEST_WAIT = 60_000;

interface RequestOptions {
  token: string | null;
  retryDelay?: number;
  stallTimeout?: number;
}

/** GET a JSON document; waits and retries on 429, 5xx and lost connections. */
export async function requestJson(url: string, options: RequestOptions): Promise<unknown> {
  return withRetries(options, async (signal) => {
    const response = await request(url, {}, options.token, signal);
    const text = await boundedText(response);
    try {
      return JSON.parse(text) as unknown;
    } catch (cause) {
      const { status } = response;
      throw new HubRequestError(
        `${new URL(url).origin} answered something that is not JSON`,
        { status },
        cause,
      );
    }
  });
}

/** The body of a response, up to a size limit. */
async function boundedText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    bytes += chunk.length;
    if (bytes > LONGEST_ANSWER) {
      throw new HubRequestError(
        `${new URL(response.url).origin} answered with more than ${LONGEST_ANSWER} bytes instead of a list of files`,
        { status: response.status },
      );
    }
    chunks.push(chunk);
  }
  return new TextDecoder().decode(Buffer.concat(chunks));
}

/**
 * Downloads one blob into the cache: resumes a partial file, verifies size and checksum, then renames it into place, so
 * that a visible blob is always complete.
 */
export async function downloadBlob(
  cache: HubCache,
  file: RepositoryFile,
  url: string,
  options: RequestOptions & { onBytes?: (received: number) => void },
): Promise<void> {
  const blob = cache.blob(file.etag);
  if (existsSync(blob)) {
    options.onBytes?.(file.size);
    return;
  }
  await mkdir(dirname(blob), { recursive: true }).catch(refuse(dirname(blob)));
  // Not the Python library's ".incomplete": it is locked in a way that Node cannot, so both could write to it at once.
  const partial = `${blob}.partial`;
  const release = await lock(`${partial}.lock`);
  try {
    if (existsSync(blob)) return; // another process finished it in the meantime
    let mismatches = 0;
    await withRetries(options, async (signal, alive) => {
      await transfer(partial, file, url, options, signal, alive);
      const found = await checksum(partial, file);
      if (found !== file.etag) {
        await rm(partial, { force: true });
        mismatches += 1;
        const sentence = `"${file.path}" does not match its checksum (expected ${file.etag}, got ${found})`;
        // One mismatch may be a damaged partial file or a bad proxy; two are the server's fault.
        if (mismatches >= 2) {
          throw new UsageError(
            "checksum-mismatch",
            `hub: ${titleOf(cache.repository)}: ${sentence}, twice; the server or a proxy alters files: check HF_ENDPOINT`,
          );
        }
        throw retryable(sentence);
      }
    });
    await rename(partial, blob);
  } finally {
    await release();
  }
}

/** One attempt: requests the missing bytes and appends them. */
async function transfer(
  partial: string,
  file: RepositoryFile,
  url: string,
  options: RequestOptions & { onBytes?: (received: number) => void },
  signal: AbortSignal,
  alive: (received: number) => void,
): Promise<void> {
  let received = sizeOf(partial);
  if (received > file.size) {
    await rm(partial, { force: true });
    received = 0;
  }
  if (received === file.size && file.size > 0) return;
  const headers: Record<string, string> = received > 0 ? { range: `bytes=${received}-` } : {};
  const response = await request(url, headers, options.token, signal);
  // Status 200 for a range request: the server sends everything from the start.
  const continues = response.status === 206 && startOfRange(response) === received;
  if (response.status === 206 && !continues) {
    await response.body?.cancel();
    await rm(partial, { force: true });
    throw retryable("the server returned a range other than the requested one");
  }
  if (!continues) received = 0;
  const handle = await open(partial, continues ? "a" : "w").catch(refuse(partial));
  try {
    for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
      if (received + chunk.length > file.size) {
        await handle.truncate(0);
        throw retryable(`"${file.path}" is longer than its listed ${file.size} bytes`);
      }
      await handle.appendFile(chunk).catch(refuse(partial));
      received += chunk.length;
      alive(received);
      options.onBytes?.(received);
    }
    await handle.sync().catch(refuse(partial));
  } finally {
    await handle.close();
  }
  if (received !== file.size) {
    throw retryable(`"${file.path}" ended after ${received} of ${file.size} bytes`);
  }
}

function startOfRange(response: Response): number | null {
  const match = /^bytes (\d+)-/.exec(response.headers.get("content-range") ?? "");
  return match ? Number(match[1]) : null;
}

async function checksum(path: string, file: RepositoryFile): Promise<string> {
  const hash =
    file.etag.length === 64
      ? createHash("sha256")
      : // git's object id: SHA-1 over a header and the content
        createHash("sha1").update(`blob ${file.size}\0`);
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

async function request(
  url: string,
  headers: Record<string, string>,
  token: string | null,
  signal: AbortSignal,
): Promise<Response> {
  let response: Response;
  try {
    // fetch drops the authorization header on redirects to another origin (storage hosts must not see it).
    response = await fetch(url, {
      headers: {
        ...headers,
        // Compression would change the meaning of byte ranges and sizes.
        "accept-encoding": "identity",
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
      },
      signal,
    });
  } catch (cause) {
    throw retryable(`no answer from ${new URL(url).origin}`, cause);
  }
  if (response.ok) return response;
  await response.body?.cancel();
  const { status } = response;
  throw new HubRequestError(`${new URL(url).origin} answered ${status}`, {
    status,
    // 416: the partial file is longer than the server's, and is started again.
    isRetryable: [408, 416, 429].includes(status) || status >= 500,
    after: retryAfter(response),
  });
}

function retryAfter(response: Response): number | null {
  const value = response.headers.get("retry-after");
  if (value === null) return null;
  const seconds = /^\d+$/.test(value) ? Number(value) : (Date.parse(value) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds * 1000) : null;
}

/**
 * Retries until an attempt succeeds: exponential backoff, the server's Retry-After if given, and a watchdog that aborts
 * an attempt that receives nothing for `stallTimeout`.
 */
async function withRetries<T>(
  options: RequestOptions,
  attempt: (signal: AbortSignal, alive: (received: number) => void) => Promise<T>,
): Promise<T> {
  const stallTimeout = options.stallTimeout ?? STALL_TIMEOUT;
  // Most bytes received by any attempt.
  let furthest = 0;
  for (let tries = 1; ; tries++) {
    const controller = new AbortController();
    let watchdog = setTimeout(() => controller.abort(), stallTimeout);
    const alive = (received: number) => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => controller.abort(), stallTimeout);
      // Only consecutive attempts without progress count: a large file may be interrupted many times and still
      // complete.
      if (received > furthest) {
        furthest = received;
        tries = 1;
      }
    };
    try {
      return await attempt(controller.signal, alive);
    } catch (cause) {
      // Retrying does not help against errors of the local disk.
      if (cause instanceof UsageError || isFileSystemError(cause)) throw cause;
      const error = cause instanceof HubRequestError ? cause : retryable("the connection was lost", cause);
      const { isRetryable, status, after } = error.failure;
      if (isRetryable !== true) throw error;
      const pause = after ?? (options.retryDelay ?? RETRY_DELAY) * 2 ** (tries - 1);
      if (tries >= ATTEMPTS || pause > LONGEST_WAIT) {
        const tail =
          pause > LONGEST_WAIT ? ` and asks to wait ${Math.ceil(pause / 1000)} s` : ` (${tries} attempts)`;
        throw new HubRequestError(error.message + tail, { status }, cause);
      }
      await wait(pause);
    } finally {
      clearTimeout(watchdog);
    }
  }
}

function refuse(path: string): (cause: unknown) => never {
  return (cause) => {
    const explained = diskError(path, cause);
    const rule =
      explained instanceof UsageError
        ? `${explained.message}; HF_HUB_CACHE names the folder`
        : `${path}: cannot be written (${(cause as NodeJS.ErrnoException).code})`;
    throw new UsageError("not-writable", `hub: ${rule}`, { cause });
  };
}

/**
 * A lock between processes: a file created exclusively, whose holder keeps updating its modification time. A lock not
 * updated for 20 s belongs to a dead process.
 */
async function lock(path: string): Promise<() => Promise<void>> {
  const stale = 20_000;
  for (;;) {
    try {
      await writeFile(path, `${hostname()}:${process.pid}`, { flag: "wx" });
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") refuse(path)(error);
      const age = await stat(path).then(
        (found) => Date.now() - found.mtimeMs,
        () => 0,
      );
      const [host, holder] = (await readFile(path, "utf8").catch(() => "")).split(":");
      // A process id is meaningless for another machine that shares the folder.
      const dead = host === hostname() && holder !== undefined && !isRunning(Number(holder));
      if (age > stale || dead) await rm(path, { force: true });
      else await wait(100);
    }
  }
  const heartbeat = setInterval(
    () => void utimes(path, new Date(), new Date()).catch(() => undefined),
    stale / 4,
  );
  heartbeat.unref();
  return async () => {
    clearInterval(heartbeat);
    await rm(path, { force: true });
  };
}

function isRunning(processId: number): boolean {
  try {
    process.kill(processId, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
