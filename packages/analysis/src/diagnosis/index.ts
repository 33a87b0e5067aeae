export { HarmWatch } from "./harm-watch.js";
export { RunDiagnosis, WARNING_RULES } from "./run-diagnosis.js";
export { TRENDS, TrendWatch } from "./trend-watch.js";
export type { Watch, WatchedValues } from "./watch.js";
