import { AstraError, diskReason, UsageError } from "@astra-rl/base";
import { noVerdict, type Doubt } from "@astra-rl/records";
import { printable } from "@astra-rl/report";

/**
 * Exit codes: success; a failed run; wrong usage, configuration or environment, which only the user can fix; a
 * completed run that is inconclusive about the target; and 128 + SIGPIPE, as for a program killed by a closed pipe. See
 * docs/exit-codes.md.
 */
export const EXIT = { done: 0, failed: 1, usage: 2, noVerdict: 3, closedPipe: 141 } as const;

/** Thrown if a command completed, but its result is inconclusive about the target. */
export class NoVerdictError extends AstraError {
  override name = "NoVerdictError";

  /**
   * @param command prefix of the line
   * @param advice what to do about it
   */
  constructor(command: string, doubts: readonly Doubt[], advice = "") {
    super(`${command}: ${doubts.length === 0 ? "No verdict on the target: " : noVerdict(doubts)}${advice}`);
  }
}

/** Thrown if other processes have already reported the error. */
export class EndedTogetherError extends AstraError {
  override name = "EndedTogetherError";

  constructor(readonly code: number) {
    super("the processes of this run ended");
  }
}

// System errors that the user can fix (disk, permissions, paths), in words. They may occur in reads and writes; for
// errors of writes only, see `diskReason`.
const SYSTEM: Record<string, string> = {
  EACCES: "permission denied; choose another folder or change its permissions",
  EPERM: "the operation is not permitted; choose another folder or change its permissions",
  ENOENT: "there is no such file or folder",
  ENOTDIR: "a part of the path is a file, not a folder",
  EISDIR: "it is a folder, not a file",
  ELOOP: "the path is a loop of links",
  ENAMETOOLONG: "the name is too long",
  EIO: "the device could not be read or written",
  EINVAL: "the file system does not support such a file or name",
  ENXIO: "there is no such device",
  ENODEV: "there is no such device",
  EBUSY: "it is in use",
  EMFILE: "this process has too many files open",
  ENFILE: "the system has too many files open",
  ERR_FS_FILE_TOO_LARGE: "it is larger than 2 GiB",
  ERR_INVALID_ARG_VALUE: "the name contains an invalid character",
};

const sentenceOf = (code: string) => (Object.hasOwn(SYSTEM, code) ? SYSTEM[code] : diskReason(code));

/** The exit code and the message for an error. */
export function explain(error: unknown): { code: number; line: string } {
  const systemCode = codeOf(error);
  if (error instanceof UsageError) return { code: EXIT.usage, line: lines(error.message) };
  if (systemCode !== null) {
    const { path, syscall } = error as NodeJS.ErrnoException;
    if (syscall === "uv_cwd") {
      return { code: EXIT.usage, line: "the working directory no longer exists; change to another one" };
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

/** Messages may quote file content or model output; keeps line breaks. */
const lines = (message: string) => printable(message, LONGEST_LINE);

/** Enough for two paths of the maximum length. */
const LONGEST_LINE = 9000;
