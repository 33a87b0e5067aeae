// Graph → what each turn is credited with, beside the rewards, which stay as they are. Must not know: how graphs are
// grown, what is learned from the credit.
export { rewardCredit } from "../core/index.js";
export { rewardCreditKind } from "./reward-credit.js";
export { backUp, backUpKind, type BackUpOptions } from "./back-up.js";
