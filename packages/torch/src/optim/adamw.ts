import { AdamBase, type AdamBaseOptions } from "./adam-base.js";
import type { ParameterList } from "./parameter-groups.js";

/** Options of {@link AdamW}; the defaults are PyTorch's. */
export interface AdamWOptions extends AdamBaseOptions {
  /** Each step first subtracts learningRate × weightDecay × parameter from the parameter. Default 0.01. */
  weightDecay?: number;
}

/** Adam with decoupled weight decay (Loshchilov & Hutter 2019), as in PyTorch. */
export class AdamW extends AdamBase {
  constructor(parameters: ParameterList, options: AdamWOptions = {}) {
    super(parameters, options, { name: "adamw", decoupled: true, weightDecay: 1e-2 });
  }
}
