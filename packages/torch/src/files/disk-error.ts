import { AstraError, UsageError } from "../errors.js";

/** What a file system's refusal to write means, and what to do about it. */
const REASONS: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full; free some space or choose another folder",
  EDQUOT: "the disk quota is used up; free some space or choose another folder",
  EFBIG: "the file would be larger than the file system or the process limit allows; choose another folder",
  EROFS: "the file system is read-only; choose another folder",
  EACCES: "the folder may not be written; change its permissions or choose another one",
  EPERM: "the folder may not be written; change its permissions or choose another one",
  ENOENT: "the folder does not exist; create it first",
  ENOTDIR: "a part of the path is a file, not a folder",
  EISDIR: "there is a folder of that name; choose another name",
  EEXIST: "there is a file of that name; choose another folder",
  ENAMETOOLONG: "the name is too long for the file system; choose a shorter one",
};

/** Runs something that writes; what the file system refuses becomes a UsageError that says what to do about it. */
export function explainDiskErrors<T>(path: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    throw diskError(path, error);
  }
}

/** As `explainDiskErrors`, for something asynchronous. */
export async function explainDiskErrorsAsync<T>(path: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (error) {
    throw diskError(path, error);
  }
}

/** What a refusal to write means, for a system's error code; undefined for any other code. */
export const diskReason = (code: string): string | undefined =>
  Object.hasOwn(REASONS, code) ? REASONS[code] : undefined;

/** The error to throw instead of one of the file system's; any other comes back as it is. */
export function diskError(path: string, error: unknown): unknown {
  const code = (error as NodeJS.ErrnoException | null)?.code ?? "";
  const reason = diskReason(code);
  if (error instanceof AstraError || reason === undefined) return error;
  return new UsageError(`${path}: cannot be written: ${reason} (${code})`, { cause: error });
}
