import { AstraError, UsageError } from "@astra-rl/torch";

const REASONS: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full; free some space or choose another folder",
  EDQUOT: "the disk quota is used up; free some space or choose another folder",
  EFBIG: "the file would be larger than is allowed here; choose another folder",
  EROFS: "the file system is read-only; choose another folder",
  EACCES: "the folder may not be written; change its permissions or choose another one",
  EPERM: "the folder may not be written; change its permissions or choose another one",
  ENOTDIR: "a part of the path is a file, not a folder",
  EEXIST: "there is a file of that name; choose another folder",
};

/** Runs something that writes; what the file system refuses becomes a sentence that says what to do about it. */
export function explainDiskErrors<T>(path: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    throw explained(path, error);
  }
}

/** As `explainDiskErrors`, for something asynchronous. */
export async function explainDiskErrorsAsync<T>(path: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (error) {
    throw explained(path, error);
  }
}

function explained(path: string, error: unknown): unknown {
  const code = (error as NodeJS.ErrnoException | null)?.code ?? "";
  const reason = REASONS[code];
  if (error instanceof AstraError || reason === undefined) return error;
  return new UsageError(`${path}: cannot be written: ${reason} (${code})`, { cause: error });
}
