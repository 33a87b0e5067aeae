import { HFASTSystem, LoRAWeights, HFASTConfiguration, type System } from "@astra-rl/method";

/** Learning rate of a model of hidden size 1. */
const UNIT_RATE = 0.012;

/** How much larger an adapter's rate is than that of all weights. */
const ADAPTER_FACTOR = 10;

/** Small models do not gain from more. */
const LARGEST_RATE = 1e-3;

/**
 * The learning rate that "auto" resolves to.
 *
 * With Adam the rate of a matrix goes with 1 / width (Yang et al., "Tensor Programs V", arXiv 2203.03466, table 3), and
 * low-rank adapters take ten times the rate of full fine-tuning (Schulman et al., "LoRA Without Regret", 2025). The
 * constant was chosen on one model of hidden size 64 (docs/log.md), on which 1e-5 learned nothing in 1,000 steps.
 * Systems without a model use the Python toolbox's rate, 1e-5.
 *
 * @param factor the algorithm's (`Kind.learningRateFactor`)
 */
export function automaticLearningRate(system: System, factor: number): number {
  if (!(system instanceof HFASTSystem)) return new HFASTConfiguration().learningRate;
  const { hiddenSize } = system.testerModel.config;
  const isAdapter = system.tester.weights instanceof LoRAWeights;
  const rate = (UNIT_RATE / hiddenSize) * (isAdapter ? ADAPTER_FACTOR : 1) * factor;
  return Math.min(LARGEST_RATE, Number(rate.toPrecision(2)));
}
