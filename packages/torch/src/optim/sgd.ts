import { UsageError } from "@astra-rl/base";
import type { Tensor } from "../tensor.js";
import { flag, nonNegative, type Values } from "./hyperparameters.js";
import { OptimizerBase, slot, type Update } from "./optimizer.js";
import type { ParameterList } from "./parameter-groups.js";

/** Options of {@link SGD}; the defaults are PyTorch's. */
export interface SGDOptions {
  /** Step size. Default 0.001. */
  learningRate?: number;
  /** Fraction of the previous update direction that is kept. Default 0: no momentum buffer. */
  momentum?: number;
  /**
   * The gradient is multiplied by 1 − dampening when it is added to the momentum buffer, except the first time. Default
   * 0.
   */
  dampening?: number;
  /** Added to the gradient, times the parameter (L2 penalty). Default 0. */
  weightDecay?: number;
  /** Nesterov momentum; needs momentum > 0 and dampening 0. Default false. */
  nesterov?: boolean;
}

const fields = {
  learningRate: nonNegative(1e-3),
  momentum: nonNegative(0),
  dampening: nonNegative(0),
  weightDecay: nonNegative(0),
  nesterov: flag(false),
};

/** Stochastic gradient descent with PyTorch's momentum: the buffer starts as the first gradient, undamped. */
export class SGD extends OptimizerBase<typeof fields> {
  constructor(parameters: ParameterList, options: SGDOptions = {}) {
    super("sgd", parameters, options, fields);
    this.checkValues(
      this.name,
      this.groups.map(({ values }) => values),
    );
  }

  protected override checkValues(where: string, groups: readonly Values<typeof fields>[]): void {
    for (const values of groups) checkNesterov(where, values);
  }

  protected slotNames(values: Values<typeof fields>): readonly string[] {
    return values.momentum > 0 ? ["momentumBuffer"] : [];
  }

  protected update(update: Update<typeof fields>): void {
    const { learningRate, momentum, dampening, weightDecay, nesterov } = update.values;
    const { parameter, slots } = update;
    let direction: Tensor = update.gradient;
    if (weightDecay !== 0) direction = direction.add(parameter, { alpha: weightDecay });
    if (momentum > 0) {
      const buffer = slot(update, "momentumBuffer");
      if (slots.step === 1) buffer.copy_(direction);
      else buffer.mul_(momentum).add_(direction, { alpha: 1 - dampening });
      direction = nesterov ? direction.add(buffer, { alpha: momentum }) : buffer;
    }
    parameter.add_(direction, { alpha: -learningRate });
  }
}

function checkNesterov(where: string, values: Values<typeof fields>): void {
  if (values.nesterov && (values.momentum <= 0 || values.dampening !== 0)) {
    throw new UsageError(
      "nesterov-without-momentum",
      `${where} nesterov: needs momentum > 0 and dampening 0, ` +
        `got momentum ${values.momentum} and dampening ${values.dampening}`,
    );
  }
}
