// Graph → what each turn is credited with, beside the rewards, which stay as they are. Must not know: how graphs are
// grown, what is learned from the credit.
export { rewardCredit } from "../core/index.js";
export { backUp, type BackUpOptions } from "./back-up.js";
export { relative, type RelativeOptions } from "./relative.js";
