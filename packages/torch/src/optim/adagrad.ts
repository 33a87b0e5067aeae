import { nonNegative, type Values } from "./hyperparameters.js";
import { OptimizerBase, slot, type Update } from "./optimizer.js";
import type { ParameterList } from "./parameter-groups.js";

/** Options of {@link Adagrad}; the defaults are PyTorch's. */
export interface AdagradOptions {
  /** Step size. Default 0.01. */
  learningRate?: number;
  /** Step n uses learningRate / (1 + (n − 1) × learningRateDecay). Default 0. */
  learningRateDecay?: number;
  /** Added to the gradient, times the parameter (L2 penalty). Default 0. */
  weightDecay?: number;
  /** Initial value of the sums of squared gradients. Default 0. */
  initialAccumulatorValue?: number;
  /** Added to the denominator, outside the square root. Default 1e-10. */
  epsilon?: number;
}

const fields = {
  learningRate: nonNegative(1e-2),
  learningRateDecay: nonNegative(0),
  weightDecay: nonNegative(0),
  initialAccumulatorValue: nonNegative(0),
  epsilon: nonNegative(1e-10),
};

/** Adagrad (Duchi et al. 2011) as in PyTorch. */
export class Adagrad extends OptimizerBase<typeof fields> {
  constructor(parameters: ParameterList, options: AdagradOptions = {}) {
    super("adagrad", parameters, options, fields);
  }

  protected slotNames(): readonly string[] {
    return ["sum"];
  }

  protected override initialSlotValue(_slot: string, values: Values<typeof fields>): number {
    return values.initialAccumulatorValue;
  }

  protected update(update: Update<typeof fields>): void {
    const { learningRate, learningRateDecay, weightDecay, epsilon } = update.values;
    const { parameter, slots } = update;
    const gradient =
      weightDecay === 0 ? update.gradient : update.gradient.add(parameter, { alpha: weightDecay });
    const sum = slot(update, "sum").addcmul_(gradient, gradient);
    const denominator = sum.sqrt().add_(epsilon);
    const rate = learningRate / (1 + (slots.step - 1) * learningRateDecay);
    parameter.addcdiv_(gradient, denominator, { value: -rate });
  }
}
