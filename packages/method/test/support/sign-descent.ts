import { nonNegative, OptimizerBase, type Tensor, type Update } from "@astra-rl/torch";

const fields = { learningRate: nonNegative(0.5), momentum: nonNegative(0.9) };

/** Follows the sign of a running mean of gradients. */
export class SignDescent extends OptimizerBase<typeof fields> {
  readonly rates: number[] = [];
  constructor(parameters: Iterable<Tensor>, options: { learningRate?: number } = {}) {
    super("sign-descent", parameters, options, fields);
  }
  protected slotNames(): readonly string[] {
    return ["mean"];
  }
  protected update({ values, parameter, gradient, slots }: Update<typeof fields>): void {
    this.rates.push(values.learningRate);
    const mean = slots.tensors.get("mean")!;
    mean.mul_(values.momentum).add_(gradient);
    parameter.sub_(mean.sign(), { alpha: values.learningRate });
  }
}
