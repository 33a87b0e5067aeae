// Models of this machine behind OpenAI's API. Must not know: configurations, runs, the command line.
export type { ServedModel } from "./answers.js";
export { messageAs } from "./attacker.js";
export { isLoopback, listen } from "./loopback.js";
export { serve, type RunningServer, type ServeOptions } from "./server.js";
export { Speaker, writtenIds, type SpeakerOptions } from "./speaker.js";
