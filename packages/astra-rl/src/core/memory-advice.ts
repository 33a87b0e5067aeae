import { OutOfMemoryError } from "@astra-rl/torch";

/** What makes each part of a run need less memory, by the keys of a configuration or a command's options. */
export const MEMORY_ADVICE = {
  load: "load less: a smaller model, models.dtype=bfloat16, or models.lora instead of training all weights",
  rollout:
    "lower training.numEpisodesPerExperience, sampler.width, sampler.depth or generation.tester.maxNewTokens and " +
    "generation.target.maxNewTokens",
  update:
    "lower training.batchSize (and raise training.gradientAccumulationSteps instead), sampler.depth or " +
    "generation.*.maxNewTokens, or set models.gradientCheckpointing=true or models.lora",
  evaluation:
    "lower evaluation.batchSize (training.evaluationRollouts in training), evaluation.depth or generation.*.maxNewTokens",
  generate: "lower --batch-size or --max-new-tokens",
  logprobs: "lower --batch-size",
} as const;

/** Runs something; where memory does not suffice for it, the error says what to change, once. */
export async function withMemoryAdvice<T>(
  part: keyof typeof MEMORY_ADVICE,
  work: () => T | Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof OutOfMemoryError) || error.cause instanceof OutOfMemoryError) throw error;
    throw new OutOfMemoryError(`${error.message}; to need less, ${MEMORY_ADVICE[part]}`, { cause: error });
  }
}
