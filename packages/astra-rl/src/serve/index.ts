// Models of this machine behind OpenAI's API. Must not know: configurations, runs, the command line.
export { refusalOf } from "./admission.js";
export type { ServedModel } from "./answers.js";
export { listen } from "./loopback.js";
export { requireToken, serve, type RunningServer, type ServeOptions } from "./server.js";
export { writtenIds } from "./speaker.js";
