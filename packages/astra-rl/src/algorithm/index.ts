// Graphs → steps → batch → loss and logs. Must not know: how graphs are grown, which model stands behind the system,
// optimizers, files.
export { DPO, dpoKind, type DPOOptions } from "./dpo.js";
export { IPO, ipoKind, type IPOOptions } from "./ipo.js";
export { dpoLoss, type DPOLossOptions } from "./dpo-loss.js";
export { ipoLoss, type IPOLossOptions } from "./ipo-loss.js";
export { preferenceMargin, type PreferenceLogprobs } from "./preference-margin.js";
export {
  Preference,
  type PairLogprobs,
  type PreferenceBatch,
  type PreferenceLoss,
  type PreferenceOptions,
  type PreferencePair,
  type PreferenceStep,
} from "./preference.js";
