import { decayRate, flag, nonNegative, type Values } from "./hyperparameters.js";
import { OptimizerBase, slot, type Update } from "./optimizer.js";
import type { ParameterList } from "./parameter-groups.js";

/** Options of {@link RMSprop}; the defaults are PyTorch's. */
export interface RMSpropOptions {
  /** Step size. Default 0.01. */
  learningRate?: number;
  /** Decay rate of the running average of squared gradients. Default 0.99. */
  alpha?: number;
  /** Added to the denominator, outside the square root. Default 1e-8. */
  epsilon?: number;
  /** Added to the gradient, times the parameter (L2 penalty). Default 0. */
  weightDecay?: number;
  /** Fraction of the previous update that is kept. Default 0. */
  momentum?: number;
  /** Divides by the estimated standard deviation instead of the root mean square. Default false. */
  centered?: boolean;
}

const fields = {
  learningRate: nonNegative(1e-2),
  alpha: decayRate(0.99),
  epsilon: nonNegative(1e-8),
  weightDecay: nonNegative(0),
  momentum: nonNegative(0),
  centered: flag(false),
};

/** RMSprop (Hinton's lecture 6e; centred form of Graves 2013) as in PyTorch: epsilon is outside the square root. */
export class RMSprop extends OptimizerBase<typeof fields> {
  constructor(parameters: ParameterList, options: RMSpropOptions = {}) {
    super("rmsprop", parameters, options, fields);
  }

  protected slotNames(values: Values<typeof fields>): readonly string[] {
    return [
      "squareAverage",
      ...(values.centered ? ["gradientAverage"] : []),
      ...(values.momentum > 0 ? ["momentumBuffer"] : []),
    ];
  }

  protected update(update: Update<typeof fields>): void {
    const { learningRate, alpha, epsilon, weightDecay, momentum, centered } = update.values;
    const { parameter } = update;
    const gradient =
      weightDecay === 0 ? update.gradient : update.gradient.add(parameter, { alpha: weightDecay });
    const square = slot(update, "squareAverage");
    square.mul_(alpha).addcmul_(gradient, gradient, { value: 1 - alpha });
    let denominator;
    if (centered) {
      const average = slot(update, "gradientAverage").lerp_(gradient, 1 - alpha);
      denominator = square.addcmul(average, average, { value: -1 }).sqrt_();
    } else {
      denominator = square.sqrt();
    }
    denominator.add_(epsilon);
    if (momentum > 0) {
      const buffer = slot(update, "momentumBuffer").mul_(momentum).addcdiv_(gradient, denominator);
      parameter.add_(buffer, { alpha: -learningRate });
    } else {
      parameter.addcdiv_(gradient, denominator, { value: -learningRate });
    }
  }
}
