import { AstraError, UsageError } from "../errors.js";

/** Meaning of a file system's write error, with a remedy. */
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

/** Runs a function that writes files; converts file system errors to UsageErrors with a remedy. */
export function explainDiskErrors<T>(path: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    throw diskError(path, error);
  }
}

/** Like `explainDiskErrors`, for asynchronous functions. */
export async function explainDiskErrorsAsync<T>(path: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (error) {
    throw diskError(path, error);
  }
}

/** Meaning of a system's error code for writing; undefined for other codes. */
export const diskReason = (code: string): string | undefined =>
  Object.hasOwn(REASONS, code) ? REASONS[code] : undefined;

/** Converts a file system error to the error to throw; returns any other error unchanged. */
export function diskError(path: string, error: unknown): unknown {
  const code = (error as NodeJS.ErrnoException | null)?.code ?? "";
  const reason = diskReason(code);
  if (error instanceof AstraError || reason === undefined) return error;
  return new UsageError("not-writable", `${path}: cannot be written: ${reason} (${code})`, { cause: error });
}
