import { differentiable } from "../differentiable.js";
import { addon } from "../native.js";
import { requireTensor, wrap } from "../operator-call.js";
import { cat } from "../operators.js";
import type { Tensor } from "../tensor.js";
import { isLoopable } from "./applicability.js";

/**
 * Rotary position embedding (Su et al. 2021, arXiv 2104.09864): rotates channels i and i + E/2 of each head by the
 * token's angle (the half-split layout of Hugging Face checkpoints, not the paper's interleaved one). One pass on the
 * CPU in float32 and bfloat16, rounded once.
 *
 * @param x [B, T, H, E], E even
 * @param cosine [B, T, E/2], in the dtype of x; like `sine`, it gets no gradient
 * @param sine likewise
 * @throws TorchError if shapes or dtypes do not match
 */
export function rotaryEmbedding(x: Tensor, cosine: Tensor, sine: Tensor): Tensor {
  requireTensor("rotaryEmbedding", "x", x);
  requireTensor("rotaryEmbedding", "cosine", cosine);
  requireTensor("rotaryEmbedding", "sine", sine);
  if (!isLoopable(x)) {
    const [a, b] = x.chunk(2, -1) as [Tensor, Tensor];
    const [c, s] = [cosine, sine].map((each) => each.unsqueeze(2)) as [Tensor, Tensor]; // [B, T, 1, E/2]
    return cat([a.mul(c).sub(b.mul(s)), b.mul(c).add(a.mul(s))], -1);
  }
  return differentiable({
    name: "rotaryEmbedding",
    inputs: [x],
    forward: () => ({
      output: wrap(addon().rotary(x.handle, cosine.handle, sine.handle, false)),
      saved: [cosine, sine],
    }),
    // The transpose of a rotation is its inverse.
    backward: (gradOutput, [c, s]) => [wrap(addon().rotary(gradOutput.handle, c!.handle, s!.handle, true))],
  });
}
