import { TorchError, UsageError } from "@astra-rl/base";
import { bytesOf } from "../dtype.js";
import { keep, noGrad, scope } from "../scope.js";
import type { Tensor } from "../tensor.js";
import {
  readHyperparameters,
  requireOptions,
  type Fields,
  type Hyperparameter,
  type Values,
} from "./hyperparameters.js";
import {
  makeGroups,
  type Group,
  type OptimizerFields,
  type OptimizerGroup,
  type ParameterList,
} from "./parameter-groups.js";

/**
 * Everything needed to resume exactly: `hyperparameters` and `steps` are plain JSON, `tensors` can be stored in a
 * safetensors file.
 */
export interface OptimizerState {
  /** The optimizer's name as in `createOptimizer`. */
  name: string;
  /** Hyper-parameters of the first group, the only one unless there are `groups`. */
  hyperparameters: Record<string, Hyperparameter>;
  /** Hyper-parameters of the groups after the first, in order; absent if there are none. */
  groups?: Record<string, Hyperparameter>[];
  /** Number of updates of each parameter; parameters that never had a gradient are missing. */
  steps: Record<string, number>;
  /** `<parameter>.<slot>` → tensor of the parameter's shape. */
  tensors: Map<string, Tensor>;
}

/** An optimizer's state for one parameter. */
export interface Slots {
  /** Number of updates, including this one. */
  step: number;
  tensors: Map<string, Tensor>;
}

/** A parameter with a gradient in this step. */
export interface Update<F extends Fields = Fields> {
  /** Hyper-parameters of its group. */
  readonly values: Values<F>;
  readonly parameter: Tensor;
  readonly gradient: Tensor;
  readonly slots: Slots;
}

/** The interface that trainers use. */
export interface Optimizer {
  /** The name that `createOptimizer` and saved states use. */
  readonly name: string;
  /**
   * Step size of the next `step()`; finite and ≥ 0. Set it from a schedule before each step. With several groups, it is
   * that of the first; each has its own.
   */
  learningRate: number;
  /** The groups in order; a single one with all parameters if none were given. */
  readonly groups: readonly OptimizerGroup[];
  /** Updates every parameter that has a gradient, in place. */
  step(): void;
  /**
   * CPU memory, in bytes, that gradients and state of all parameters will take in addition to what is allocated
   * already.
   */
  bytesToCome(): number;
  /** Clears all gradients: `grad` becomes null, so that a parameter not used in the next loss is not updated. */
  zeroGrad(): void;
  /**
   * The current state. The tensors are the optimizer's own, not copies: write or clone them before the next `step()`,
   * and do not dispose of them.
   */
  stateDict(): OptimizerState;
  /**
   * Replaces hyper-parameters and state by copies of those in `saved`. If it throws, nothing has changed.
   * @throws UsageError if `saved` comes from another optimizer, or its parameters, shapes or dtypes differ.
   */
  loadStateDict(saved: OptimizerState): void;
  /** Frees the state tensors. The optimizer can be used again, with fresh state. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/**
 * Base class of all optimizers: owns the state, iterates over parameters, saves and restores.
 *
 * The caller owns the parameters; the optimizer owns the state tensors until `dispose()`. As in PyTorch, a parameter
 * without a gradient is skipped, and its step count does not change.
 */
export abstract class OptimizerBase<F extends OptimizerFields> implements Optimizer {
  readonly name: string;
  readonly groups: readonly Group<F>[];
  protected readonly fields: F;
  private readonly state = new Map<string, Slots>();

  /**
   * @throws UsageError if the options are not an object, there are no parameters, one is given twice or does not require a gradient, or an option
   * (also of a group) is unknown or out of range.
   */
  protected constructor(name: string, parameters: ParameterList, options: object, fields: F) {
    requireOptions(name, options);
    this.name = name;
    this.fields = fields;
    this.groups = makeGroups(name, parameters, options, fields);
  }

  get learningRate(): number {
    return this.groups[0]!.learningRate;
  }

  set learningRate(value: number) {
    this.groups[0]!.learningRate = value;
  }

  step(): void {
    noGrad(() => {
      scope(() => {
        const updates: Update<F>[] = [];
        for (const { values, parameters } of this.groups) {
          for (const [name, parameter] of parameters) {
            const gradient = parameter.grad;
            if (gradient === null) continue;
            const slots = this.slotsOf(name, parameter, values);
            slots.step += 1;
            updates.push({ values, parameter, gradient, slots });
          }
        }
        this.apply(updates);
      });
    });
  }

  bytesToCome(): number {
    let bytes = 0;
    for (const { values, parameters } of this.groups) {
      for (const [name, parameter] of parameters) {
        if (parameter.device !== "cpu") continue;
        const gradients = parameter.grad === null ? 1 : 0;
        const slots = this.state.has(name) ? 0 : this.slotNames(values).length;
        bytes += (gradients + slots) * parameter.numel() * bytesOf(parameter.dtype);
      }
    }
    return bytes;
  }

  zeroGrad(): void {
    for (const { parameters } of this.groups) {
      for (const parameter of parameters.values()) parameter.grad = null;
    }
  }

  stateDict(): OptimizerState {
    const steps: Record<string, number> = {};
    const tensors = new Map<string, Tensor>();
    for (const [name, slots] of this.state) {
      steps[name] = slots.step;
      for (const [slot, tensor] of slots.tensors) tensors.set(`${name}.${slot}`, tensor);
    }
    const [first, ...others] = this.groups.map(({ values }): Record<string, Hyperparameter> => ({
      ...values,
    }));
    return {
      name: this.name,
      hyperparameters: first!,
      ...(others.length === 0 ? {} : { groups: others }),
      steps,
      tensors,
    };
  }

  loadStateDict(saved: OptimizerState): void {
    const where = `${this.name} state`;
    if (saved.name !== this.name) {
      throw new UsageError(
        "other-optimizer",
        `${where}: the saved state is of optimizer ${JSON.stringify(saved.name)}`,
      );
    }
    const given = [saved.hyperparameters, ...(saved.groups ?? [])];
    if (given.length !== this.groups.length) {
      throw new UsageError(
        "group-count-mismatch",
        `${where}: has ${given.length} groups of parameters, but this optimizer has ${this.groups.length}`,
      );
    }
    const values = given.map((hyperparameters) => readHyperparameters(where, hyperparameters, this.fields));
    this.checkValues(where, values);
    const groupOf = new Map(
      this.groups.flatMap(({ parameters }, group) =>
        [...parameters.keys()].map((name) => [name, group] as const),
      ),
    );
    const fresh = new Map<string, Slots>();
    const known = new Set<string>();
    for (const [name, step] of Object.entries(saved.steps)) {
      const group = groupOf.get(name);
      if (group === undefined) {
        throw new UsageError(
          "unknown-parameter",
          `${where}: it has a parameter ${JSON.stringify(name)} that this optimizer does not have`,
        );
      }
      if (!Number.isSafeInteger(step) || step < 1) {
        throw new UsageError(
          "out-of-range",
          `${where}: steps of ${JSON.stringify(name)} must be a positive integer, got ${step}`,
        );
      }
      const parameter = this.groups[group]!.parameters.get(name)!;
      const tensors = new Map<string, Tensor>();
      for (const slot of this.slotNames(values[group]!)) {
        const key = `${name}.${slot}`;
        tensors.set(slot, checkSlot(where, key, saved.tensors.get(key), parameter));
        known.add(key);
      }
      fresh.set(name, { step, tensors });
    }
    for (const key of saved.tensors.keys()) {
      if (!known.has(key))
        throw new UsageError("unexpected-tensor", `${where}: unexpected tensor ${JSON.stringify(key)}`);
    }
    // Kept only when all are created: if memory runs out halfway, none of them leaks.
    const copies = noGrad(() =>
      keep(
        scope(() => {
          for (const [name, slots] of fresh) {
            const parameter = this.groups[groupOf.get(name)!]!.parameters.get(name)!;
            for (const [slot, tensor] of slots.tensors) {
              slots.tensors.set(slot, parameter.emptyLike().copy_(tensor.detach()));
            }
          }
          return fresh;
        }),
      ),
    );
    this.dispose();
    for (const [name, slots] of copies) this.state.set(name, slots);
    this.groups.forEach((group, at) => (group.values = values[at]!));
  }

  dispose(): void {
    for (const slots of this.state.values()) for (const tensor of slots.tensors.values()) tensor.dispose();
    this.state.clear();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Names of each parameter's state tensors under these hyper-parameters. */
  protected abstract slotNames(values: Values<F>): readonly string[];

  /** Initial value of a new state tensor. */
  protected initialSlotValue(_slot: string, _values: Values<F>): number {
    return 0;
  }

  /** Throws for incompatible hyper-parameters of groups. */
  protected checkValues(_where: string, _groups: readonly Values<F>[]): void {}

  /** The update rule for one parameter; runs without gradient recording, in its own scope. */
  protected abstract update(update: Update<F>): void;

  /** All updates of one step; override it if updating parameters together is faster. */
  protected apply(updates: readonly Update<F>[]): void {
    // One scope each, so that the temporaries of one parameter are freed before the next.
    for (const update of updates) scope(() => this.update(update));
  }

  private slotsOf(name: string, parameter: Tensor, values: Values<F>): Slots {
    let slots = this.state.get(name);
    if (slots === undefined) {
      // Same memory layout as the parameter.
      const make = (slot: string) => parameter.fullLike(this.initialSlotValue(slot, values));
      // Kept only when all are created: if memory runs out halfway, none of them leaks.
      const tensors = keep(
        scope(() => new Map(this.slotNames(values).map((slot) => [slot, make(slot)] as const))),
      );
      slots = { step: 0, tensors };
      this.state.set(name, slots);
    }
    return slots;
  }
}

/** A state tensor listed in `slotNames`. */
export function slot(update: Pick<Update, "slots">, name: string): Tensor {
  const tensor = update.slots.tensors.get(name);
  if (tensor === undefined) throw new TorchError(`internal: optimizer state has no slot ${name}`);
  return tensor;
}

function checkSlot(where: string, key: string, tensor: Tensor | undefined, parameter: Tensor): Tensor {
  if (tensor === undefined)
    throw new UsageError("missing-tensor", `${where}: tensor ${JSON.stringify(key)} is missing`);
  const given = `${tensor.dtype} [${tensor.shape.join(", ")}]`;
  const needed = `${parameter.dtype} [${parameter.shape.join(", ")}]`;
  if (given !== needed) {
    throw new UsageError(
      "tensor-mismatch",
      `${where}: tensor ${JSON.stringify(key)} must be ${needed}, got ${given}`,
    );
  }
  return tensor;
}
