// A page over run folders, live while they are written. Must not know: how runs are trained.
export { view, type RunningView, type ViewOptions } from "./server.js";
