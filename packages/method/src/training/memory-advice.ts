import { availableMemory, type Optimizer } from "@astra-rl/torch";
import { OutOfMemoryError } from "@astra-rl/base";

/** How to reduce the memory of each part of a run, in configuration keys or command options. */
export const MEMORY_ADVICE = {
  load: "load less: a smaller model, models.dtype=bfloat16, or models.lora instead of training all weights",
  rollout:
    "lower training.numEpisodesPerExperience, sampler.width, sampler.depth or generation.tester.maxNewTokens and " +
    "generation.target.maxNewTokens",
  update:
    "lower training.batchSize (and raise training.gradientAccumulationSteps instead), sampler.depth or " +
    "generation.*.maxNewTokens, or set models.gradientCheckpointing=true or models.lora",
  training:
    "train an adapter (models.lora) or a smaller tester, or take an optimizer with less state (training.optimizer=sgd)",
  evaluation:
    "lower evaluation.batchSize (training.evaluationRollouts in training), evaluation.depth or generation.*.maxNewTokens",
  generate: "lower --batch-size or --max-new-tokens",
  logprobs: "lower --batch-size",
} as const;

/**
 * Throws before any work if training cannot fit in memory: the size of gradients and optimizer state is known, and
 * updates need at least that much.
 */
export function requireMemoryForUpdates(optimizer: Optimizer): void {
  const memory = availableMemory();
  const needed = optimizer.bytesToCome();
  if (memory === null || needed <= memory.available) return;
  const bytes = (count: number) =>
    `${count.toLocaleString("en-US")} bytes (${(count / 2 ** 30).toFixed(1)} GiB)`;
  throw new OutOfMemoryError(
    `training: gradients and the state of ${optimizer.name} need ${bytes(needed)} in addition to the loaded ` +
      `weights, but only ` +
      `${bytes(memory.available)} of the ${bytes(memory.limit)} of ${memory.of} are available; ` +
      `to use less, ${MEMORY_ADVICE.training}`,
  );
}

/** Runs `work`; adds advice to an out-of-memory error, once. */
export async function withMemoryAdvice<T>(
  part: keyof typeof MEMORY_ADVICE,
  work: () => T | Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof OutOfMemoryError) || error.cause instanceof OutOfMemoryError) throw error;
    throw new OutOfMemoryError(`${error.message}; to use less, ${MEMORY_ADVICE[part]}`, { cause: error });
  }
}
