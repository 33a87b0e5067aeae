export { CosineTerm, cosine, cosineKind } from "./cosine.js";
export { EntropyTerm, entropy, entropyKind } from "./entropy.js";
export { GibberishTerm, gibberish, gibberishKind, type GibberishOptions } from "./gibberish.js";
export { HarmTerm, harm, harmKind, type CountedProbes, type HarmOptions, type HarmText } from "./harm.js";
export { LikelihoodTerm, likelihood, likelihoodKind } from "./likelihood.js";
export { NLLTerm, nll, nllKind, nllOptions, type NLLOptions } from "./nll.js";
export {
  PRESET_WEIGHTS,
  REWARD_PRESETS,
  elicitationReward,
  paperReward,
  presetHas,
  presetReward,
  toolboxReward,
  type ElicitationRewardOptions,
  type PaperRewardOptions,
  type PresetWeights,
  type RewardPreset,
} from "./presets.js";
export type { RewardTerm, Turn } from "./reward-term.js";
export { Reward, type RewardOptions, type WeightedTerm } from "./reward.js";
export { SelfBLEUTerm, selfBLEUKind, selfBLEUTerm, type SelfBLEUOptions } from "./self-bleu.js";
