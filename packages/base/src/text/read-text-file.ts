import { constants, createReadStream } from "node:fs";
import { open, readFile, stat } from "node:fs/promises";
import { UsageError } from "../errors.js";

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file",
  ENOTDIR: "there is no such file; a part of its path is a file, not a folder",
  EISDIR: "it is a folder",
  EACCES: "permission denied; change its permissions",
  ELOOP: "the path is a loop of links",
  ENAMETOOLONG: "the name is too long",
  ERR_FS_FILE_TOO_LARGE: "it is larger than 2 GiB",
};

/** Codes of the system for a file that does not exist. */
const MISSING: readonly string[] = ["ENOENT", "ENOTDIR"];

/** Maximum bytes read from a device; some, such as /dev/zero, never end. */
const MOST_OF_DEVICE = 1 << 26;

/** Maximum bytes of a file, a pipe or standard input; more text would exceed the maximum string length. */
const MOST_BYTES = 1 << 28;

/** Read timeout of a pipe, without and with a writer. Milliseconds. */
const PIPE_PATIENCE = { withoutWriter: 10_000, withWriter: 60_000 };
/** Polling interval in milliseconds. */
const PIPE_PAUSE = 20;

/**
 * Reads all bytes of a file.
 *
 * @throws UsageError for an endless device, a pipe without a writer, and more than 256 MiB; the system's error for
 * anything else
 */
async function readBytes(path: string): Promise<Buffer> {
  const found = await stat(path);
  if (found.isFIFO()) return readPipe(path);
  if (!found.isCharacterDevice()) {
    if (found.isFile() && found.size > MOST_BYTES) throw tooLarge(path, "is a file of", MOST_BYTES);
    return readFile(path);
  }
  return collect(
    createReadStream(path),
    () => tooLarge(path, "is a device that gives", MOST_OF_DEVICE),
    MOST_OF_DEVICE,
  );
}

/** Reads standard input to its end. @throws UsageError for more than 256 MiB */
export function readStandardInput(): Promise<Buffer> {
  return collect(process.stdin, () => tooLarge("standard input", "gives", MOST_BYTES), MOST_BYTES);
}

const tooLarge = (what: string, gives: string, limit: number) =>
  new UsageError("too-large", `${what}: ${gives} more than ${limit >> 20} MiB; name a file, or parts of it`);

async function collect(
  stream: AsyncIterable<unknown>,
  error: () => UsageError,
  limit: number,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream) {
    chunks.push(Buffer.from(chunk as Uint8Array));
    bytes += (chunk as Uint8Array).length;
    if (bytes > limit) throw error();
  }
  return Buffer.concat(chunks);
}

/** Non-blocking, because opening a pipe otherwise waits for a writer, possibly forever. */
async function readPipe(path: string): Promise<Buffer> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const chunks: Buffer[] = [];
  let bytes = 0;
  let silentSince = performance.now();
  try {
    for (;;) {
      const chunk = Buffer.alloc(1 << 16);
      let count = -1;
      try {
        count = (await handle.read(chunk)).bytesRead;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      }
      if (count > 0) {
        bytes += count;
        if (bytes > MOST_BYTES) throw tooLarge(path, "is a pipe that gives", MOST_BYTES);
        chunks.push(chunk.subarray(0, count));
        silentSince = performance.now();
        continue;
      }
      // 0 bytes mean the end after some data; before that, no writer has opened the pipe.
      if (count === 0 && bytes > 0) return Buffer.concat(chunks);
      const patience = count === 0 ? PIPE_PATIENCE.withoutWriter : PIPE_PATIENCE.withWriter;
      if (performance.now() - silentSince > patience) {
        throw new UsageError(
          "silent-pipe",
          `${path}: is a pipe to which nothing was written for ${patience / 1000} s; name a file`,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, PIPE_PAUSE));
    }
  } finally {
    await handle.close();
  }
}

/**
 * Reads all bytes of a file named by the user.
 *
 * @param what its content, for messages, such as "prompts"
 * @throws UsageError if it cannot be read
 */
export async function readNamedFile(path: string, what: string): Promise<Buffer> {
  try {
    return await readBytes(path);
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    const code = String((cause as NodeJS.ErrnoException).code);
    const reason = Object.hasOwn(REASONS, code) ? REASONS[code] : code;
    throw new UsageError(
      MISSING.includes(code) ? "file-not-found" : "file-unreadable",
      `${path}: cannot read ${what}: ${reason}`,
      { cause },
    );
  }
}

/**
 * Reads a file of UTF-8 text.
 *
 * @param what its content, for messages, such as "prompts"
 * @throws UsageError if it cannot be read or is not UTF-8: in a wrong encoding, words would never match
 */
export async function readTextFile(path: string, what: string): Promise<string> {
  return decodeText(await readNamedFile(path, what), `${path}: ${what}`);
}

/** @param where begins the message @throws UsageError for bytes that are not UTF-8 */
export function decodeText(bytes: Uint8Array, where: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new UsageError("not-utf8", `${where} must be UTF-8 text, got other bytes; convert the file`, {
      cause,
    });
  }
}

/** Reads a file of JSON. @throws UsageError as `readTextFile` does, and for invalid JSON */
export async function readJSONFile(path: string, what: string): Promise<unknown> {
  const text = await readTextFile(path, what);
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new UsageError(
      "not-json",
      `${path}: cannot read ${what}: it is not JSON: ${(cause as Error).message}`,
      {
        cause,
      },
    );
  }
}

/**
 * The values of a text of JSON lines, with the numbers of their lines; empty lines are skipped.
 *
 * @throws UsageError prefixed with path:line
 */
export function jsonLines(text: string, path: string): { value: unknown; line: number }[] {
  return text.split(/\r?\n/u).flatMap((content, index) => {
    if (content.trim() === "") return [];
    try {
      return [{ value: JSON.parse(content) as unknown, line: index + 1 }];
    } catch (cause) {
      throw new UsageError("not-json", `${path}:${index + 1}: is not JSON: ${(cause as Error).message}`, {
        cause,
      });
    }
  });
}
