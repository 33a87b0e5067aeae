import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import {
  checkDigest,
  DIGESTS,
  explainDiskErrors,
  fileDigest,
  makeFolder,
  UsageError,
  writeDigests,
  writeFileAtomic,
} from "@astra-rl/base";

export interface FetchOptions {
  /** Required SHA-256. Without it, later downloads must match the first one. */
  sha256?: string | undefined;
  /** Makes no requests. */
  offline?: boolean;
  /** Base of the exponential wait between attempts, milliseconds. Default 500. */
  retryDelay?: number | undefined;
  /** Aborts an attempt that receives no data for this long, milliseconds. Default 30 000. */
  stallTimeout?: number | undefined;
}

const ATTEMPTS = 4;
/** Maximum size of a prompt file, against endless responses. */
const MOST_BYTES = 2 ** 28;

/**
 * Downloads a file to the cache once, atomically, and verifies its digest, which `SHA256SUMS` in the same folder
 * records.
 *
 * A file placed there manually counts as downloaded.
 *
 * @param title for messages, such as `prompt set "name"`
 * @throws UsageError if the download fails, with instructions for downloading it manually
 */
export async function fetchFile(
  url: string,
  path: string,
  title: string,
  { sha256, offline = false, retryDelay = 500, stallTimeout = 30_000 }: FetchOptions = {},
): Promise<void> {
  const byHand = `download ${url} manually, and save it as ${path}`;
  if (existsSync(path)) {
    if (sha256 === undefined && existsSync(join(dirname(path), DIGESTS))) checkDigest(path);
    const found = fileDigest(path);
    if (sha256 !== undefined && found !== sha256) {
      throw new UsageError(
        "checksum-mismatch",
        `${path}: is not the expected file of ${title} (SHA-256 ${found} instead of ${sha256}); delete it to ` +
          `fetch it again`,
      );
    }
    pin(path, found);
    return;
  }
  if (offline) {
    throw new UsageError(
      "not-cached",
      `${title}: HF_HUB_OFFLINE is set, and it is not in the cache; go online once, or ${byHand}`,
    );
  }
  for (let tries = 1; ; tries++) {
    const result = await attempt(url, sha256, stallTimeout);
    if ("bytes" in result) {
      makeFolder(dirname(path));
      explainDiskErrors(path, () => writeFileAtomic(path, [result.bytes]));
      pin(path, result.digest);
      return;
    }
    const { problem, isFinal, what = "cannot be fetched" } = result;
    if (isFinal || tries >= ATTEMPTS) {
      throw new UsageError(
        "download-failed",
        `${title}: ${what} (${problem}, ${url}); try again later, or ${byHand}`,
      );
    }
    await wait(retryDelay * 2 ** (tries - 1));
  }
}

/** Records the digest of a cached file. */
function pin(path: string, digest: string): void {
  if (existsSync(join(dirname(path), DIGESTS))) return;
  explainDiskErrors(path, () => writeDigests(dirname(path), new Map([[basename(path), digest]])));
}

type Attempt = { bytes: Buffer; digest: string } | { problem: string; isFinal: boolean; what?: string };

/** One request, following redirects; any response other than the complete file is a problem. */
async function attempt(url: string, sha256: string | undefined, stallTimeout: number): Promise<Attempt> {
  const controller = new AbortController();
  let watchdog = setTimeout(() => controller.abort(), stallTimeout);
  try {
    const response = await fetch(url, { signal: controller.signal });
    if (url.startsWith("https:") && !response.url.startsWith("https:")) {
      await response.body?.cancel();
      return { problem: `redirected to the unprotected ${response.url}`, isFinal: true };
    }
    if (!response.ok) {
      await response.body?.cancel();
      const isFinal = response.status < 500 && response.status !== 429 && response.status !== 408;
      return { problem: `the server answered ${response.status}`, isFinal };
    }
    const chunks: Uint8Array[] = [];
    let received = 0;
    for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => controller.abort(), stallTimeout);
      received += chunk.length;
      if (received > MOST_BYTES) return { problem: `more than ${MOST_BYTES} bytes`, isFinal: true };
      chunks.push(chunk);
    }
    const bytes = Buffer.concat(chunks);
    const digest = createHash("sha256").update(bytes).digest("hex");
    if (sha256 === undefined || digest === sha256) return { bytes, digest };
    const what = "the download is not the expected file";
    return { problem: `SHA-256 ${digest}, expected ${sha256}`, isFinal: false, what };
  } catch (error) {
    const reason = controller.signal.aborted ? "no data was received for too long" : "the connection failed";
    const cause = (error as { cause?: { code?: string } }).cause?.code;
    return { problem: cause === undefined ? reason : `${reason}: ${cause}`, isFinal: false };
  } finally {
    clearTimeout(watchdog);
  }
}
