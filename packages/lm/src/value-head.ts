import { existsSync } from "node:fs";
import { join } from "node:path";
import {
  addDigests,
  cast,
  checkDigest,
  dispose,
  keep,
  linear,
  noGrad,
  openSafetensors,
  scope,
  UsageError,
  writeSafetensors,
  zeros,
  type Tensor,
} from "@astra-rl/torch";
import type { CausalLM } from "./causal-lm.js";

/** Beside the weights of a checkpoint; whoever loads only the model does not see it. */
const FILE = "value_head.safetensors";

/** TRL's names for the same two tensors. */
const WEIGHT = "v_head.summary.weight";
const BIAS = "v_head.summary.bias";

/**
 * A linear map from the last hidden state, after the final norm, to the value of the state that it stands for:
 * V = w·h + b, trained together with the tester that it reads.
 *
 * It begins at zero, as OpenAI's lm-human-preferences does (Huang et al. 2023, "The N Implementation Details of RLHF with
 * PPO"): a value that knows nothing is 0 for every text, and its first gradients teach the head before they
 * reach the tester. There is no dropout, unlike in TRL: values of one text must not differ from call to call.
 */
export class ValueHead {
  /** [1, D] */
  readonly weight: Tensor;
  /** [1] */
  readonly bias: Tensor;

  /** A head for a model's hidden states; the caller disposes of it. */
  constructor({ config, computeDtype, device }: Pick<CausalLM, "config" | "computeDtype" | "device">) {
    const dtype = computeDtype === "float64" ? "float64" : "float32";
    this.weight = keep(zeros([1, config.hiddenSize], { dtype, device })).requiresGrad_();
    this.bias = keep(zeros([1], { dtype, device })).requiresGrad_();
  }

  /** Whether a folder holds a saved head. */
  static isIn(folder: string): boolean {
    return existsSync(join(folder, FILE));
  }

  parameters(): Tensor[] {
    return [this.weight, this.bias];
  }

  /** Values of hidden states in the head's own type, whatever the model computes in: [n, D] → [n]. */
  read(states: Tensor): Tensor {
    return scope(() => linear(cast(states, this.weight.dtype), this.weight, this.bias).squeeze(-1));
  }

  /** Writes the head beside a checkpoint that is in the folder already. */
  save(folder: string): void {
    const digests = new Map<string, string>();
    writeSafetensors(join(folder, FILE), this.#named(), { format: "pt" }, digests);
    addDigests(folder, digests);
  }

  /**
   * Takes the numbers of a saved head, in place: optimizers keep their hold of the parameters.
   *
   * @throws UsageError where the folder holds none, or one of another width
   */
  restore(folder: string): void {
    const path = join(folder, FILE);
    if (!ValueHead.isIn(folder)) {
      throw new UsageError(
        `${path}: there is no such file, so the tester that was saved there had no value head; start a new run from ` +
          `its weights, whose value head begins at zero`,
      );
    }
    checkDigest(path);
    const file = openSafetensors(path);
    try {
      scope(() => {
        const own = [...this.#named()];
        const stored = own.map(([name, { shape }]) => {
          const found = file.tensors.get(name);
          if (found !== undefined && String(found.shape) === String(shape)) return file.read(name);
          throw new UsageError(
            `${path}: "${name}" must have shape [${shape.join(", ")}], as this tester's hidden states need, but ` +
              (found === undefined ? "is missing" : `has [${found.shape.join(", ")}]`),
          );
        });
        noGrad(() => own.forEach(([, tensor], at) => tensor.copy_(stored[at]!)));
      });
    } finally {
      file.close();
    }
  }

  dispose(): void {
    dispose(this.parameters());
  }

  #named(): Map<string, Tensor> {
    return new Map([
      [WEIGHT, this.weight],
      [BIAS, this.bias],
    ]);
  }
}
