import { AstraError, diskReason, UsageError } from "@astra-rl/torch";
import { noVerdict } from "../records/index.js";
import { printable } from "../report/index.js";

/**
 * Done; a run that failed; wrong usage, configuration or surroundings that only the user can put right; a run that came to
 * its end and says nothing of the target; and 128 + SIGPIPE, as of a program that a closed pipe has ended.
 * docs/exit-codes.md lists what ends in which.
 */
export const EXIT = { done: 0, failed: 1, usage: 2, noVerdict: 3, closedPipe: 141 } as const;

/** Thrown where all went as it should, but what came of it says nothing of the target. */
export class NoVerdictError extends AstraError {
  override name = "NoVerdictError";

  /** @param command begins the line */
  constructor(command: string, doubts: readonly string[]) {
    super(`${command}: ${noVerdict(doubts)}`);
  }
}

// The user's disk, permissions or paths, not our fault: what the system calls it, in words. These may be about reading
// as well as about writing; what only a write can meet is said by `diskReason`.
const SYSTEM: Record<string, string> = {
  EACCES: "permission denied; choose another folder or change its permissions",
  EPERM: "the operation is not permitted; choose another folder or change its permissions",
  ENOENT: "there is no such file or folder",
  ENOTDIR: "a part of the path is a file, not a folder",
  EISDIR: "it is a folder, not a file",
  ELOOP: "the path is a circle of links",
  ENAMETOOLONG: "the name is too long",
  EIO: "the device could not be read or written",
  EINVAL: "the file system does not take such a file or name",
  ENXIO: "there is no such device",
  ENODEV: "there is no such device",
  EBUSY: "it is in use",
  EMFILE: "this process has too many files open",
  ENFILE: "the system has too many files open",
  ERR_FS_FILE_TOO_LARGE: "it is larger than 2 GiB",
  ERR_INVALID_ARG_VALUE: "the name holds a character that no name may have",
};

const sentenceOf = (code: string) => (Object.hasOwn(SYSTEM, code) ? SYSTEM[code] : diskReason(code));

/** How an error ends a command: the exit code and the line to show. */
export function explain(error: unknown): { code: number; line: string } {
  const systemCode = codeOf(error);
  if (error instanceof UsageError) return { code: EXIT.usage, line: lines(error.message) };
  if (systemCode !== null) {
    const { path, syscall } = error as NodeJS.ErrnoException;
    if (syscall === "uv_cwd") {
      return { code: EXIT.usage, line: "the working directory is no more; change to another one" };
    }
    const where = path === undefined ? "" : `${path}: `;
    return { code: EXIT.usage, line: lines(`${where}${sentenceOf(systemCode)} (${systemCode})`) };
  }
  if (error instanceof NoVerdictError) return { code: EXIT.noVerdict, line: lines(error.message) };
  if (error instanceof AstraError) return { code: EXIT.failed, line: lines(error.message) };
  const message = error instanceof Error ? error.message : String(error);
  return { code: EXIT.failed, line: lines(`internal: ${message} (set ASTRA_RL_DEBUG=1 for the stack)`) };
}

function codeOf(error: unknown): string | null {
  if (!(error instanceof Error) || error instanceof AstraError) return null;
  const { code } = error as NodeJS.ErrnoException;
  return code !== undefined && sentenceOf(code) !== undefined ? code : null;
}

/** Messages may quote what a file or a model said; their own line breaks stay. */
const lines = (message: string) => printable(message, LONGEST_LINE);

/** Room for two paths as long as a system takes them. */
const LONGEST_LINE = 9000;
