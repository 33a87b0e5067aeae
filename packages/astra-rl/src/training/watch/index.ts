// Detects unhealthy trends in a run and words the warnings. Must not know: how steps are computed, where warnings go.
export { HarmWatch } from "./harm-watch.js";
export { RunWatches } from "./run-watches.js";
export { TRENDS, TrendWatch, type Trend } from "./trend-watch.js";
export { Watch, type Change, type WatchedValues } from "./watch.js";
