// Rewards of turns: named terms and their weighted sum. Must not depend on samplers, models or algorithms.
export { cosine, cosineKind, CosineTerm } from "./cosine.js";
export { entropy, entropyKind, EntropyTerm } from "./entropy.js";
export { gibberish, gibberishKind, GibberishTerm, type GibberishOptions } from "./gibberish.js";
export { harm, harmKind, HarmTerm, type CountedProbes, type HarmOptions, type HarmText } from "./harm.js";
export { likelihood, likelihoodKind, LikelihoodTerm } from "./likelihood.js";
export { nll, nllKind, nllOptions, NLLTerm, type NLLOptions } from "./nll.js";
export {
  elicitationReward,
  paperReward,
  presetHas,
  presetReward,
  PRESET_WEIGHTS,
  REWARD_PRESETS,
  toolboxReward,
  type ElicitationRewardOptions,
  type PaperRewardOptions,
  type PresetWeights,
  type RewardPreset,
} from "./presets.js";
export { Reward, type RewardOptions, type WeightedTerm } from "./reward.js";
export { selfBLEUKind, selfBLEUTerm, SelfBLEUTerm, type SelfBLEUOptions } from "./self-bleu.js";
