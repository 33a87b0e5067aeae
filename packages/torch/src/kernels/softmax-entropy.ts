import { differentiable } from "../differentiable.js";
import { empty } from "../factories.js";
import { cat } from "../operators.js";
import { scope } from "../scope.js";
import type { Tensor } from "../tensor.js";

/** Logits per block of rows: bounds the size of intermediate tensors. */
const AT_ONCE = 2 ** 22;

/** Smaller than the logarithm of every positive float64: its exponential is 0, and 0 times it is 0, not NaN. */
const LEAST = -1e4;

/**
 * The entropy of each row's distribution, H = −Σ p·log p in nats with p = softmax(logits). Differentiable (once on the
 * CPU): ∂H/∂logit = −p·(log p + H). On the CPU, the logits are the only tensor of their size kept for the backward
 * pass; log-probabilities may be passed instead of logits.
 *
 * @param logits [rows, vocabulary]
 * @returns dtype [rows]
 */
export function softmaxEntropy(logits: Tensor, dtype: "float32" | "float64"): Tensor {
  const logProbabilities = (part: Tensor) => part.logSoftmax(-1, dtype).clampMin(LEAST);
  const entropy = (part: Tensor) =>
    scope(() => {
      const logs = logProbabilities(part);
      return logs.exp().mul(logs).sum([-1]).neg();
    });
  if (logits.device !== "cpu") return entropy(logits);
  const [rows, vocabulary] = logits.shape as [number, number];
  const blocks = blocksOf(rows, vocabulary);
  return differentiable({
    name: "softmaxEntropy",
    inputs: [logits],
    forward: () => {
      const output = cat(
        blocks.map(([start, length]) => entropy(logits.narrow(0, start, length))),
        0,
      );
      return { output, saved: [logits, output] };
    },
    backward: (gradOutput, [saved, entropies]) => {
      const gradient = empty([rows, vocabulary], { dtype: saved!.dtype });
      for (const [start, length] of blocks) {
        scope(() => {
          const part = (whole: Tensor) => whole.narrow(0, start, length);
          const logs = logProbabilities(part(saved!));
          const slope = logs.add(part(entropies!).unsqueeze(-1)).mul_(logs.exp_());
          part(gradient).copy_(slope.mul_(part(gradOutput).neg().unsqueeze(-1)));
        });
      }
      return [gradient];
    },
  });
}

/** [start, length] of blocks of rows; a single empty block if there are no rows. */
function blocksOf(rows: number, vocabulary: number): [start: number, length: number][] {
  const step = Math.max(1, Math.floor(AT_ONCE / vocabulary));
  const blocks: [number, number][] = [];
  for (let start = 0; start === 0 || start < rows; start += step) {
    blocks.push([start, Math.min(step, rows - start)]);
  }
  return blocks;
}
