/**
 * Local models behind OpenAI's API. It must not know configurations, runs, or the command line.
 *
 * @module @astra-rl/serve
 */
export type { ServedModel } from "./answers.js";
export { requireToken, serve, type RunningServer, type ServeOptions } from "./server.js";
