import { createReadStream } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { UsageError } from "@astra-rl/torch";

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file",
  ENOTDIR: "there is no such file; a part of its path is a file, not a folder",
  EISDIR: "it is a folder",
  EACCES: "it may not be read; change its permissions",
  ELOOP: "the path is a circle of links",
  ENAMETOOLONG: "the name is too long",
  ERR_FS_FILE_TOO_LARGE: "it is larger than 2 GiB",
};

/** Bytes that a device may give; some give zeros without end. */
const MOST_OF_DEVICE = 1 << 26;

/** All bytes of a file. @throws UsageError for a device that does not end, the system's own error for anything else */
export async function readBytes(path: string): Promise<Buffer> {
  if (!(await stat(path)).isCharacterDevice()) return readFile(path);
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of createReadStream(path)) {
    chunks.push(chunk as Buffer);
    bytes += (chunk as Buffer).length;
    if (bytes > MOST_OF_DEVICE)
      throw new UsageError(`${path}: is a device that gives more than 64 MiB; name a file`);
  }
  return Buffer.concat(chunks);
}

/**
 * All bytes of a file that a user named.
 *
 * @param what stands in it, for messages, such as "prompts"
 * @throws UsageError where it cannot be read
 */
export async function readNamedFile(path: string, what: string): Promise<Buffer> {
  try {
    return await readBytes(path);
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    const code = String((cause as NodeJS.ErrnoException).code);
    const reason = Object.hasOwn(REASONS, code) ? REASONS[code] : code;
    throw new UsageError(`${path}: cannot read ${what}: ${reason}`, { cause });
  }
}

/**
 * Reads a file of UTF-8 text.
 *
 * @param what stands in it, for messages, such as "prompts"
 * @throws UsageError where it cannot be read, or is no UTF-8: read as another encoding, words would never be found again
 */
export async function readTextFile(path: string, what: string): Promise<string> {
  const bytes = await readNamedFile(path, what);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new UsageError(`${path}: ${what} must be UTF-8 text, got other bytes; convert the file`, { cause });
  }
}
