import { describeValue, UsageError } from "@astra-rl/torch";

/** How an utterance is sampled and where it ends. */
export interface Sampling {
  /** Most tokens to sample, the one that ends the utterance included; at least 1. */
  maxNewTokens: number;
  /** Fewest tokens before an end id may be sampled; stop strings end an utterance at any length. Default 0. */
  minNewTokens?: number;
  /** Always take the likeliest token (the lowest id among equals); temperature, topK and topP then say nothing. */
  greedy?: boolean;
  /** Divides the logits; above 0. Default 1. */
  temperature?: number;
  /** Only the k likeliest tokens may be drawn; 0 = all. Default 0. */
  topK?: number;
  /** Only the likeliest tokens whose probability first reaches p may be drawn; in (0, 1]. Default 1 = all. */
  topP?: number;
  /**
   * Logits of tokens that the context or the utterance already holds are divided by it where positive and multiplied
   * where negative (Keskar et al. 2019, arXiv 1909.05858); 1 = off. Default 1.
   */
  repetitionPenalty?: number;
  /** Ids that end the utterance besides the model's own end ids. */
  stopIds?: readonly number[];
  /** Texts that end the utterance; it is cut before them. */
  stopStrings?: readonly string[];
  /** The utterance keeps the stop string, and whatever the token that completed it holds beyond it. Default false. */
  keepStopString?: boolean;
  /** Record the log-probability of each sampled token under the full distribution. Default true. */
  recordLogprobs?: boolean;
  /** Record it under the distribution that was drawn from as well (filters and temperature applied). Default false. */
  recordBehaviour?: boolean;
}

export type ResolvedSampling = Readonly<Required<Sampling>>;

/** Logits divided by less, or by that much more or less where a token was seen, leave the range of float32. */
export const LEAST_TEMPERATURE = 1e-6;
export const REPETITION_PENALTY_RANGE = [1e-6, 1e6] as const;

/**
 * The defaults filled in, every value checked.
 *
 * @throws UsageError that names the option, the rule and the value
 */
export function resolveSampling(sampling: Sampling): ResolvedSampling {
  const {
    maxNewTokens,
    minNewTokens = 0,
    greedy = false,
    temperature = 1,
    topK = 0,
    topP = 1,
    repetitionPenalty = 1,
    stopIds = [],
    stopStrings = [],
    keepStopString = false,
    recordLogprobs = true,
    recordBehaviour = false,
  } = sampling;
  const refuse = (name: keyof Sampling, rule: string, value: unknown): never => {
    throw new UsageError(`sampling.${name}: ${rule}, got ${describeValue(value)}`);
  };
  if (!Number.isSafeInteger(maxNewTokens) || maxNewTokens < 1) {
    refuse("maxNewTokens", "must be a whole number of at least 1", maxNewTokens);
  }
  if (!Number.isSafeInteger(minNewTokens) || minNewTokens < 0 || minNewTokens > maxNewTokens) {
    refuse("minNewTokens", `must be a whole number from 0 to maxNewTokens (${maxNewTokens})`, minNewTokens);
  }
  if (!(temperature >= LEAST_TEMPERATURE) || !Number.isFinite(temperature)) {
    const rule = `must be a number of at least ${LEAST_TEMPERATURE} (for the likeliest token set greedy: true)`;
    refuse("temperature", rule, temperature);
  }
  if (!Number.isSafeInteger(topK) || topK < 0) {
    refuse("topK", "must be a whole number of at least 0 (0 = all tokens)", topK);
  }
  if (!(topP > 0 && topP <= 1)) refuse("topP", "must be a number above 0 and at most 1", topP);
  const [least, most] = REPETITION_PENALTY_RANGE;
  if (!(repetitionPenalty >= least && repetitionPenalty <= most)) {
    refuse("repetitionPenalty", `must be a number from ${least} to ${most} (1 = off)`, repetitionPenalty);
  }
  for (const id of stopIds) {
    if (!Number.isSafeInteger(id) || id < 0) refuse("stopIds", "must be token ids", id);
  }
  for (const text of stopStrings) {
    if (typeof text !== "string" || text === "")
      refuse("stopStrings", "must be strings that are not empty", text);
  }
  return {
    maxNewTokens,
    minNewTokens,
    greedy,
    temperature,
    topK,
    topP,
    repetitionPenalty,
    stopIds,
    stopStrings,
    keepStopString,
    recordLogprobs,
    recordBehaviour,
  };
}
