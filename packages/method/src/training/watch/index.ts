export { HarmWatch } from "./harm-watch.js";
export { ProgressWatch } from "./progress-watch.js";
export { RareWatch } from "./rare-watch.js";
export { RunWatches, WARNING_RULES, type RunWatchesOptions } from "./run-watches.js";
export { TRENDS, TrendWatch, type Trend } from "./trend-watch.js";
export { WindowWatch, type Change, type Comparison, type Watch, type WatchedValues } from "./watch.js";
