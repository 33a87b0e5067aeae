import { TorchError, UsageError } from "../errors.js";
import { full } from "../factories.js";
import { keep, noGrad, scope } from "../scope.js";
import type { Tensor } from "../tensor.js";
import {
  readHyperparameters,
  type Field,
  type Fields,
  type Hyperparameter,
  type Values,
} from "./hyperparameters.js";

/** What is optimised: tensors in a fixed order, or by name (then the saved state carries the names). */
export type ParameterList = Iterable<Tensor> | ReadonlyMap<string, Tensor>;

/** Everything needed to continue exactly: `hyperparameters` and `steps` are plain JSON, `tensors` fit a safetensors file. */
export interface OptimizerState {
  /** The optimizer's name as in `createOptimizer`. */
  name: string;
  hyperparameters: Record<string, Hyperparameter>;
  /** Updates done so far for each parameter; parameters that never had a gradient are missing. */
  steps: Record<string, number>;
  /** `<parameter>.<slot>` → tensor of the parameter's shape. */
  tensors: Map<string, Tensor>;
}

/** What an optimizer remembers about one parameter. */
export interface Slots {
  /** Updates done, this one included. */
  step: number;
  tensors: Map<string, Tensor>;
}

/** One parameter that has a gradient in this step. */
export interface Update {
  readonly parameter: Tensor;
  readonly gradient: Tensor;
  readonly slots: Slots;
}

/** What a trainer needs of an optimizer. */
export interface Optimizer {
  /** The name that `createOptimizer` and saved states use. */
  readonly name: string;
  /** Step size of the next `step()`; finite and ≥ 0. Set it from a schedule before each step. */
  learningRate: number;
  /** Updates, in place, every parameter that has a gradient. */
  step(): void;
  /** Forgets all gradients: `grad` becomes null, so that a parameter left out of the next loss is not updated. */
  zeroGrad(): void;
  /**
   * The state as it stands. The tensors are the optimizer's own, not copies: write or clone them before the
   * next `step()`, and do not dispose of them.
   */
  stateDict(): OptimizerState;
  /**
   * Replaces hyper-parameters and state by copies of those in `saved`. Nothing changes when it throws.
   * @throws UsageError when `saved` comes from another optimizer, or its parameters, shapes or dtypes differ.
   */
  loadStateDict(saved: OptimizerState): void;
  /** Frees the state tensors. The optimizer may be used again; it then starts from nothing. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/**
 * Base of all optimizers: owns the state, walks the parameters, and saves and restores.
 *
 * Parameters stay the caller's; state tensors belong to the optimizer until `dispose()`. A parameter without a
 * gradient is skipped, and its step count does not move, as in PyTorch. All parameters share one set of
 * hyper-parameters.
 */
export abstract class OptimizerBase<F extends OptimizerFields> implements Optimizer {
  readonly name: string;
  protected readonly fields: F;
  protected values: Values<F>;
  private readonly parameters: ReadonlyMap<string, Tensor>;
  private readonly state = new Map<string, Slots>();

  /**
   * @throws UsageError when there are no parameters, one is given twice or does not require a gradient, or an
   * option is unknown or out of range.
   */
  protected constructor(name: string, parameters: ParameterList, options: object, fields: F) {
    this.name = name;
    this.fields = fields;
    this.values = readHyperparameters(name, options, fields);
    this.parameters = nameParameters(name, parameters);
  }

  get learningRate(): number {
    return this.values.learningRate as number;
  }

  set learningRate(value: number) {
    const read = this.fields.learningRate.read(`${this.name} learningRate`, value);
    this.values = { ...this.values, learningRate: read };
  }

  step(): void {
    noGrad(() => {
      scope(() => {
        const updates: Update[] = [];
        for (const [name, parameter] of this.parameters) {
          const gradient = parameter.grad;
          if (gradient === null) continue;
          const slots = this.slotsOf(name, parameter);
          slots.step += 1;
          updates.push({ parameter, gradient, slots });
        }
        this.apply(updates);
      });
    });
  }

  zeroGrad(): void {
    for (const parameter of this.parameters.values()) parameter.grad = null;
  }

  stateDict(): OptimizerState {
    const steps: Record<string, number> = {};
    const tensors = new Map<string, Tensor>();
    for (const [name, slots] of this.state) {
      steps[name] = slots.step;
      for (const [slot, tensor] of slots.tensors) tensors.set(`${name}.${slot}`, tensor);
    }
    return { name: this.name, hyperparameters: { ...this.values }, steps, tensors };
  }

  loadStateDict(saved: OptimizerState): void {
    const where = `${this.name} state`;
    if (saved.name !== this.name) {
      throw new UsageError(`${where}: the saved state is of optimizer ${JSON.stringify(saved.name)}`);
    }
    const values = readHyperparameters(where, saved.hyperparameters, this.fields);
    const fresh = new Map<string, Slots>();
    const known = new Set<string>();
    for (const [name, step] of Object.entries(saved.steps)) {
      const parameter = this.parameters.get(name);
      if (parameter === undefined) {
        throw new UsageError(
          `${where}: it has a parameter ${JSON.stringify(name)} that this optimizer does not have`,
        );
      }
      if (!Number.isSafeInteger(step) || step < 1) {
        throw new UsageError(
          `${where}: steps of ${JSON.stringify(name)} must be a positive integer, got ${step}`,
        );
      }
      const tensors = new Map<string, Tensor>();
      for (const slot of this.slotNames(values)) {
        const key = `${name}.${slot}`;
        tensors.set(slot, checkSlot(where, key, saved.tensors.get(key), parameter));
        known.add(key);
      }
      fresh.set(name, { step, tensors });
    }
    for (const key of saved.tensors.keys()) {
      if (!known.has(key)) throw new UsageError(`${where}: unexpected tensor ${JSON.stringify(key)}`);
    }
    // Kept when all of them are there: where memory ends halfway, none stays behind.
    const copies = noGrad(() =>
      keep(
        scope(() => {
          for (const [name, slots] of fresh) {
            const { device } = this.parameters.get(name)!;
            for (const [slot, tensor] of slots.tensors) {
              slots.tensors.set(slot, tensor.detach().to(device).clone());
            }
          }
          return fresh;
        }),
      ),
    );
    this.dispose();
    for (const [name, slots] of copies) this.state.set(name, slots);
    this.values = values;
  }

  dispose(): void {
    for (const slots of this.state.values()) for (const tensor of slots.tensors.values()) tensor.dispose();
    this.state.clear();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Names of the state tensors that each parameter has under these hyper-parameters. */
  protected abstract slotNames(values: Values<F>): readonly string[];

  /** Value that a new state tensor is filled with. */
  protected initialSlotValue(_slot: string): number {
    return 0;
  }

  /** The update rule for one parameter; runs without gradient recording, in a scope of its own. */
  protected abstract update(update: Update): void;

  /** All updates of one step; to be overridden where doing them together is faster. */
  protected apply(updates: readonly Update[]): void {
    // A scope each, so that the temporaries of one parameter are gone before the next one makes its own.
    for (const update of updates) scope(() => this.update(update));
  }

  private slotsOf(name: string, parameter: Tensor): Slots {
    let slots = this.state.get(name);
    if (slots === undefined) {
      const { shape, dtype, device } = parameter;
      const make = (slot: string) => full(shape, this.initialSlotValue(slot), { dtype, device });
      // Kept when all of them are there: where memory ends halfway, none stays behind.
      const tensors = keep(
        scope(() => new Map(this.slotNames(this.values).map((slot) => [slot, make(slot)] as const))),
      );
      slots = { step: 0, tensors };
      this.state.set(name, slots);
    }
    return slots;
  }
}

/** The one field that every optimizer has. */
export type OptimizerFields = Fields & { learningRate: Field<number> };

/** A state tensor that `slotNames` promises. */
export function slot(update: Update, name: string): Tensor {
  const tensor = update.slots.tensors.get(name);
  if (tensor === undefined) throw new TorchError(`internal: optimizer state has no slot ${name}`);
  return tensor;
}

function nameParameters(where: string, list: ParameterList): Map<string, Tensor> {
  const named =
    list instanceof Map
      ? new Map<string, Tensor>(list as ReadonlyMap<string, Tensor>)
      : new Map([...(list as Iterable<Tensor>)].map((tensor, index) => [String(index), tensor]));
  if (named.size === 0) throw new UsageError(`${where}: there are no parameters to optimise`);
  const seen = new Map<Tensor, string>();
  for (const [name, tensor] of named) {
    const twin = seen.get(tensor);
    if (twin !== undefined) {
      throw new UsageError(
        `${where}: parameters ${JSON.stringify(twin)} and ${JSON.stringify(name)} are the same tensor`,
      );
    }
    seen.set(tensor, name);
    if (!tensor.requiresGrad) {
      throw new UsageError(`${where}: parameter ${JSON.stringify(name)} does not require a gradient`);
    }
  }
  return named;
}

function checkSlot(where: string, key: string, tensor: Tensor | undefined, parameter: Tensor): Tensor {
  if (tensor === undefined) throw new UsageError(`${where}: tensor ${JSON.stringify(key)} is missing`);
  const given = `${tensor.dtype} [${tensor.shape.join(", ")}]`;
  const needed = `${parameter.dtype} [${parameter.shape.join(", ")}]`;
  if (given !== needed) {
    throw new UsageError(`${where}: tensor ${JSON.stringify(key)} must be ${needed}, got ${given}`);
  }
  return tensor;
}
