import { printable } from "@astra-rl/report";
import { EXIT } from "./exit.js";

/** How many are shown. */
const MOST_SHOWN = 3;
const LONGEST_LINE = 2000;

/**
 * Reports errors that nothing waits for, such as those of an agent's code after its answer, instead of ending the process
 * with a trace: what was computed until then would be lost.
 *
 * @param write takes a line
 */
export function watchLateErrors(write: (line: string) => void) {
  let count = 0;
  let isOver = false;
  const onError = (error: unknown) => {
    count++;
    if (isOver) process.exitCode ||= EXIT.failed;
    const { stack = "", message = String(error) } = error instanceof Error ? error : {};
    if (process.env.ASTRA_RL_DEBUG) write(stack);
    if (count > MOST_SHOWN) return;
    const place = /[^\s()]+:\d+:\d+/u.exec(stack)?.[0].replace(/^file:\/\//u, "");
    const more = count === MOST_SHOWN ? "; further ones are not shown" : "";
    const where = place === undefined ? "" : ` (${place})`;
    write(
      `astra-rl: an error that nothing waited for, such as in an agent's code after its answer: ` +
        `${printable(message, LONGEST_LINE)}${where}; the command goes on, and will end with code 1${more}`,
    );
  };
  process.on("uncaughtException", onError);
  return {
    /** How many there were. */
    get count() {
      return count;
    },
    /** After the command, while the process still ends: an error sets its code. */
    outlive: () => void (isOver = true),
    /** Restores the previous handling. */
    end: () => void process.off("uncaughtException", onError),
  };
}
