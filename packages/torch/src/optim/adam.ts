import { AdamBase, type AdamBaseOptions } from "./adam-base.js";
import type { ParameterList } from "./parameter-groups.js";

/** Options of {@link Adam}; the defaults are PyTorch's. */
export interface AdamOptions extends AdamBaseOptions {
  /** Added to the gradient, times the parameter (L2 penalty). Default 0. */
  weightDecay?: number;
}

/** Adam (Kingma & Ba 2015) with L2 weight decay added to the gradient, as in PyTorch. */
export class Adam extends AdamBase {
  constructor(parameters: ParameterList, options: AdamOptions = {}) {
    super(parameters, options, { name: "adam", decoupled: false, weightDecay: 0 });
  }
}
