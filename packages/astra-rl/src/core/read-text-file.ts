import { readFile } from "node:fs/promises";
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

/**
 * Reads a file of UTF-8 text.
 *
 * @param what stands in it, for messages, such as "prompts"
 * @throws UsageError where it cannot be read, or is no UTF-8: read as another encoding, words would never be found again
 */
export async function readTextFile(path: string, what: string): Promise<string> {
  let bytes: Buffer;
  try {
    bytes = await readFile(path);
  } catch (cause) {
    const code = String((cause as NodeJS.ErrnoException).code);
    const reason = Object.hasOwn(REASONS, code) ? REASONS[code] : code;
    throw new UsageError(`${path}: cannot read ${what}: ${reason}`, { cause });
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new UsageError(`${path}: ${what} must be UTF-8 text, got other bytes; convert the file`, { cause });
  }
}
