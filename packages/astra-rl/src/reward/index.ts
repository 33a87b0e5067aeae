// What a turn is worth: named terms and their weighted sum. Must not know: how turns are grown, which model stands
// behind them, what is learned from them.
export { harm, harmKind, HarmTerm, type CountedProbes, type HarmOptions, type HarmText } from "./harm.js";
export { likelihood, likelihoodKind, LikelihoodTerm } from "./likelihood.js";
export { nll, nllKind, NLLTerm, type NLLOptions } from "./nll.js";
export {
  paperReward,
  presetReward,
  PRESET_WEIGHTS,
  REWARD_PRESETS,
  toolboxReward,
  type PaperRewardOptions,
  type PresetWeights,
  type RewardPreset,
} from "./presets.js";
export { Reward, type RewardOptions, type WeightedTerm } from "./reward.js";
