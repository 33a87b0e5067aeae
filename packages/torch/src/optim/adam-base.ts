import { addon } from "../native.js";
import type { Tensor } from "../tensor.js";
import { decayRatePair, flag, nonNegative, requireOptions, type Values } from "./hyperparameters.js";
import { OptimizerBase, slot, type Update } from "./optimizer.js";
import type { ParameterList } from "./parameter-groups.js";

/** Options shared by Adam and AdamW; the defaults are PyTorch's. */
export interface AdamBaseOptions {
  /** Step size. Default 0.001. */
  learningRate?: number;
  /** Decay rates of the running averages of the gradient and of its square. Default [0.9, 0.999]. */
  betas?: readonly [number, number];
  /** Added to the denominator, after the square root and the bias correction. Default 1e-8. */
  epsilon?: number;
  /** Uses the maximum of all past averages of squares (Reddi et al. 2018). Default false. */
  amsgrad?: boolean;
  /**
   * One native pass over all float32 parameters on the CPU instead of a dozen operators for each; other parameters, and
   * amsgrad, always use operators. Results agree up to rounding. Not part of the saved state. Default true.
   */
  fused?: boolean;
}

const adamFields = (weightDecay: number) => ({
  learningRate: nonNegative(1e-3),
  betas: decayRatePair([0.9, 0.999]),
  epsilon: nonNegative(1e-8),
  weightDecay: nonNegative(weightDecay),
  amsgrad: flag(false),
});

type AdamFields = ReturnType<typeof adamFields>;

/** Differences between Adam and AdamW. */
interface Variant {
  name: string;
  /** Weight decay shrinks the parameter (AdamW) instead of entering the gradient (Adam). */
  decoupled: boolean;
  /** Default weight decay. */
  weightDecay: number;
}

/** Kingma & Ba 2015, algorithm 1, in PyTorch's order of operations. */
export abstract class AdamBase extends OptimizerBase<AdamFields> {
  private readonly decoupled: boolean;
  private readonly fused: boolean;

  protected constructor(parameters: ParameterList, options: AdamBaseOptions, variant: Variant) {
    requireOptions(variant.name, options);
    const { fused = true, ...hyperparameters } = options;
    super(variant.name, parameters, hyperparameters, adamFields(variant.weightDecay));
    this.decoupled = variant.decoupled;
    this.fused = flag(true).read(`${variant.name} fused`, fused);
  }

  protected slotNames(values: Values<AdamFields>): readonly string[] {
    return values.amsgrad ? ["expAvg", "expAvgSq", "maxExpAvgSq"] : ["expAvg", "expAvgSq"];
  }

  protected override apply(updates: readonly Update<AdamFields>[]): void {
    for (const { values } of this.groups) {
      const own = updates.filter((update) => update.values === values);
      const together = this.fused && !values.amsgrad ? own.filter(canFuse) : [];
      super.apply(together.length === 0 ? own : own.filter((update) => !together.includes(update)));
      if (together.length > 0) this.applyFused(values, together);
    }
  }

  protected update(update: Update<AdamFields>): void {
    const { learningRate, betas, epsilon, weightDecay, amsgrad } = update.values;
    const { parameter, slots } = update;
    const [beta1, beta2] = betas;
    let { gradient } = update;
    if (this.decoupled) parameter.mul_(1 - learningRate * weightDecay);
    else if (weightDecay !== 0) gradient = gradient.add(parameter, { alpha: weightDecay });
    const expAvg = slot(update, "expAvg").lerp_(gradient, 1 - beta1);
    const expAvgSq = slot(update, "expAvgSq")
      .mul_(beta2)
      .addcmul_(gradient, gradient, { value: 1 - beta2 });
    let square = expAvgSq;
    if (amsgrad) {
      square = slot(update, "maxExpAvgSq");
      square.copy_(square.maximum(expAvgSq));
    }
    const correction = Math.sqrt(1 - beta2 ** slots.step);
    const denominator = square.sqrt().div_(correction).add_(epsilon);
    const stepSize = learningRate / (1 - beta1 ** slots.step);
    parameter.addcdiv_(expAvg, denominator, { value: -stepSize });
  }

  private applyFused(values: Values<AdamFields>, updates: readonly Update<AdamFields>[]): void {
    const { learningRate, betas, epsilon, weightDecay } = values;
    const handles = (pick: (update: Update<AdamFields>) => Tensor) =>
      updates.map((update) => pick(update).handle);
    addon().fusedAdam(
      handles((update) => update.parameter),
      handles((update) => update.gradient),
      handles((update) => slot(update, "expAvg")),
      handles((update) => slot(update, "expAvgSq")),
      updates.map((update) => update.slots.step),
      learningRate,
      betas[0],
      betas[1],
      epsilon,
      weightDecay,
      this.decoupled,
    );
  }
}

/** The native loop needs contiguous float32 memory on the CPU. */
function canFuse({ parameter, gradient }: Pick<Update, "parameter" | "gradient">): boolean {
  return (
    [parameter, gradient].every((tensor) => tensor.device === "cpu" && tensor.dtype === "float32") &&
    addon().isDense(parameter.handle)
  );
}
