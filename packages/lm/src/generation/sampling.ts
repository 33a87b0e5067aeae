import { describeValue, UsageError } from "@astra-rl/base";

/** How tokens are sampled, and where a generation ends. */
export interface Sampling {
  /** Maximum number of sampled tokens, including the one that ends the generation; at least 1. */
  maxNewTokens: number;
  /**
   * Minimum number of tokens before an end id may be sampled; stop strings end a generation at any length. Default 0.
   */
  minNewTokens?: number;
  /** Always takes the most likely token (the lowest id in a tie); temperature, topK and topP are then ignored. */
  greedy?: boolean;
  /** Divides the logits; must be positive. Default 1. */
  temperature?: number;
  /** Samples only from the k most likely tokens; 0 = all. Default 0. */
  topK?: number;
  /**
   * Samples only from the smallest set of most likely tokens whose probability reaches p, in (0, 1]. Default 1 = all.
   */
  topP?: number;
  /**
   * Logits of tokens already in the context or generation are divided by this if positive and multiplied if negative
   * (Keskar et al. 2019, arXiv 1909.05858); 1 = off. Default 1.
   */
  repetitionPenalty?: number;
  /** Ids that end the generation, in addition to the model's end ids. */
  stopIds?: readonly number[];
  /** Strings that end the generation; the result is truncated before them. */
  stopStrings?: readonly string[];
  /** Keeps the stop string in the result, with the rest of the token that completed it. Default false. */
  keepStopString?: boolean;
  /** Records the log-probability of each sampled token under the full distribution. Default true. */
  recordLogprobs?: boolean;
  /** Also records it under the distribution sampled from (with temperature and filters). Default false. */
  recordBehaviour?: boolean;
}

export type ResolvedSampling = Readonly<Required<Sampling>>;

/**
 * Logits divided by a smaller temperature can exceed the range of float32; so can those with a larger repetition
 * penalty, or one below its inverse.
 */
export const LEAST_TEMPERATURE = 1e-6;
export const REPETITION_PENALTY_RANGE = [1e-6, 1e6] as const;

const DEFAULTS: Omit<ResolvedSampling, "maxNewTokens"> = {
  minNewTokens: 0,
  greedy: false,
  temperature: 1,
  topK: 0,
  topP: 1,
  repetitionPenalty: 1,
  stopIds: [],
  stopStrings: [],
  keepStopString: false,
  recordLogprobs: true,
  recordBehaviour: false,
};

/**
 * Fills in defaults and checks every value.
 *
 * @throws UsageError naming the option, the rule and the value
 */
export function resolveSampling(sampling: Sampling): ResolvedSampling {
  const given = Object.entries(sampling).filter(([, value]) => value !== undefined);
  const resolved: ResolvedSampling = { ...DEFAULTS, ...(Object.fromEntries(given) as unknown as Sampling) };
  const { maxNewTokens, minNewTokens, temperature, topK, topP, repetitionPenalty } = resolved;
  const refuse = (
    name: keyof Sampling,
    requirement: string,
    value: unknown,
    rule = "out-of-range",
  ): never => {
    throw new UsageError(rule, `sampling.${name}: ${requirement}, got ${describeValue(value)}`);
  };
  if (!Number.isSafeInteger(maxNewTokens) || maxNewTokens < 1) {
    refuse("maxNewTokens", "must be a whole number of at least 1", maxNewTokens);
  }
  if (!Number.isSafeInteger(minNewTokens) || minNewTokens < 0 || minNewTokens > maxNewTokens) {
    refuse("minNewTokens", `must be a whole number from 0 to maxNewTokens (${maxNewTokens})`, minNewTokens);
  }
  if (!(temperature >= LEAST_TEMPERATURE) || !Number.isFinite(temperature)) {
    const requirement = `must be a number of at least ${LEAST_TEMPERATURE} (for the likeliest token set greedy: true)`;
    refuse("temperature", requirement, temperature);
  }
  if (!Number.isSafeInteger(topK) || topK < 0) {
    refuse("topK", "must be a whole number of at least 0 (0 = all tokens)", topK);
  }
  if (!(topP > 0 && topP <= 1)) refuse("topP", "must be a number above 0 and at most 1", topP);
  const [least, most] = REPETITION_PENALTY_RANGE;
  if (!(repetitionPenalty >= least && repetitionPenalty <= most)) {
    refuse("repetitionPenalty", `must be a number from ${least} to ${most} (1 = off)`, repetitionPenalty);
  }
  for (const id of resolved.stopIds) {
    if (!Number.isSafeInteger(id) || id < 0) refuse("stopIds", "must be token ids", id, "invalid-token-id");
  }
  for (const text of resolved.stopStrings) {
    if (typeof text !== "string" || text === "")
      refuse("stopStrings", "must be strings that are not empty", text, "empty");
  }
  return resolved;
}
