export { type RunningView, type ViewOptions, view } from "./server.js";
