import { createContext, Script, type Context } from "node:vm";

/** Work exceeded its time limit. */
export class TimeLimitError extends Error {}

const call = new Script("work()");
let sandbox: { context: Context; globals: { work?: () => unknown } } | undefined;

/**
 * Share of the limit that the process must have computed; below, other processes kept it waiting. Half is enough: work
 * that is not hostile needs a thousandth.
 */
const LEAST_SHARE = 0.5;
/** Maximum waiting time on a busy machine, as a multiple of the limit. */
const MOST_WAITING = 32;

/**
 * Runs synchronous work defined by a model's files, such as a chat template or a regular expression, and interrupts it
 * after a time limit, even within one match of a regular expression. Costs about 0.1 ms per call.
 *
 * Waiting for the processor does not count: on a busy machine, work that has run for less than half of its limit is
 * started again with more time. Work may be interrupted anywhere, without running its `finally` blocks: it must not
 * modify anything that is used afterwards. Its memory is not limited.
 *
 * @throws TimeLimitError if it takes longer
 */
export function withTimeLimit<T>(milliseconds: number, work: () => T): T {
  if (sandbox === undefined) {
    const globals = {};
    sandbox = { globals, context: createContext(globals) };
  }
  const { context, globals } = sandbox;
  for (let timeout = Math.ceil(milliseconds); ; timeout *= 2) {
    const before = process.cpuUsage();
    globals.work = work;
    try {
      return call.runInContext(context, { timeout }) as T;
    } catch (error) {
      if ((error as { code?: unknown } | null)?.code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
      const { user, system } = process.cpuUsage(before);
      const isStarved = (user + system) / 1000 < LEAST_SHARE * milliseconds;
      if (isStarved && timeout < MOST_WAITING * milliseconds) continue;
      throw new TimeLimitError(`it takes longer than ${(milliseconds / 1000).toFixed(1)} seconds`);
    } finally {
      delete globals.work;
    }
  }
}
