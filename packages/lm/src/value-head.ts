import { existsSync } from "node:fs";
import { join } from "node:path";
import { addDigests, checkDigest, UsageError } from "@astra-rl/base";
import {
  cast,
  dispose,
  keep,
  linear,
  noGrad,
  openSafetensors,
  scope,
  writeSafetensors,
  zeros,
  type Tensor,
} from "@astra-rl/torch";
import type { CausalLM } from "./causal-lm.js";
import { checkStored, finite } from "./read-parameters.js";

/** Stored next to a checkpoint's weights; ignored when only the model is loaded. */
const FILE = "value_head.safetensors";

/** TRL's names for the same two tensors. */
const WEIGHT = "v_head.summary.weight";
const BIAS = "v_head.summary.bias";

/**
 * A linear value head on the last hidden state, after the final norm: V = w·h + b, trained jointly with the tester.
 *
 * It is initialized to zero, as in OpenAI's lm-human-preferences (Huang et al. 2023, "The N Implementation Details of
 * RLHF with PPO"): initial values are 0 for every text, and the first gradients train the head before they reach the
 * tester. Unlike in TRL there is no dropout: values of the same text must not differ between calls.
 */
export class ValueHead {
  /** [1, D] */
  readonly weight: Tensor;
  /** [1] */
  readonly bias: Tensor;

  /** A head for a model's hidden states. The caller disposes of it. */
  constructor({ config, computeDtype, device }: Pick<CausalLM, "config" | "computeDtype" | "device">) {
    const dtype = computeDtype === "float64" ? "float64" : "float32";
    this.weight = keep(zeros([1, config.hiddenSize], { dtype, device })).requiresGrad_();
    this.bias = keep(zeros([1], { dtype, device })).requiresGrad_();
  }

  /** Whether a folder contains a saved head. */
  static isIn(folder: string): boolean {
    return existsSync(join(folder, FILE));
  }

  parameters(): Tensor[] {
    return [this.weight, this.bias];
  }

  /** Values of hidden states, in the head's own type, for any type of the model: [n, D] → [n]. */
  read(states: Tensor): Tensor {
    return scope(() => linear(cast(states, this.weight.dtype), this.weight, this.bias).squeeze(-1));
  }

  /** Saves the head into a checkpoint's folder. */
  save(folder: string): void {
    const digests = new Map<string, string>();
    writeSafetensors(join(folder, FILE), this.#named(), { format: "pt" }, digests);
    addDigests(folder, digests);
  }

  /**
   * Loads a saved head in place, so that optimizers keep their references to the parameters.
   *
   * @throws UsageError if the folder has none, or one of another hidden size
   */
  restore(folder: string): void {
    const path = join(folder, FILE);
    if (!ValueHead.isIn(folder)) {
      throw new UsageError(
        "missing-value-head",
        `${path}: there is no such file, so the tester that was saved there had no value head; start a new run from ` +
          `its weights, whose value head begins at zero`,
      );
    }
    checkDigest(path);
    const file = openSafetensors(path);
    try {
      scope(() => {
        const own = [...this.#named()];
        const stored = own.map(([name, { shape, dtype, device }]) => {
          checkStored(path, name, file.tensors.get(name), shape, "for this tester's hidden states");
          return finite(file.read(name), path, name, { dtype, device });
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
