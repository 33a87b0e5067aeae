// Graph → credit of each turn; rewards are unchanged. Must not depend on samplers or algorithms.
export { rewardCredit } from "../core/index.js";
export { rewardCreditKind } from "./reward-credit.js";
export { backUp, backUpKind, type BackUpOptions } from "./back-up.js";
