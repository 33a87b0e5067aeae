import { bytesOf } from "../dtype.js";
import { TorchError, UsageError } from "../errors.js";
import { isTensor } from "../operator-call.js";
import { keep, noGrad, scope } from "../scope.js";
import type { Tensor } from "../tensor.js";
import {
  readHyperparameters,
  type Field,
  type Fields,
  type Hyperparameter,
  type Values,
} from "./hyperparameters.js";

/** Tensors in a fixed order, or by name (then the saved state carries the names). */
export type Parameters = Iterable<Tensor> | ReadonlyMap<string, Tensor>;

/** Parameters with hyper-parameters of their own, as PyTorch's `param_groups`; what is not given is the optimizer's. */
export interface ParameterGroup {
  parameters: Parameters;
  /** Step size. */
  learningRate?: number;
  [hyperparameter: string]: unknown;
}

/** What is optimised: parameters, or groups of them. */
export type ParameterList = Parameters | Iterable<ParameterGroup>;

/** Everything needed to continue exactly: `hyperparameters` and `steps` are plain JSON, `tensors` fit a safetensors file. */
export interface OptimizerState {
  /** The optimizer's name as in `createOptimizer`. */
  name: string;
  /** Those of the first group, the only one unless there are `groups`. */
  hyperparameters: Record<string, Hyperparameter>;
  /** Those of the groups behind the first, in their order; absent where there are none. */
  groups?: Record<string, Hyperparameter>[];
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
export interface Update<F extends Fields = Fields> {
  /** Hyper-parameters of its group. */
  readonly values: Values<F>;
  readonly parameter: Tensor;
  readonly gradient: Tensor;
  readonly slots: Slots;
}

/** Parameters that share their hyper-parameters. */
export interface OptimizerGroup {
  /** Step size of the next `step()`; finite and ≥ 0. */
  learningRate: number;
}

/** What a trainer needs of an optimizer. */
export interface Optimizer {
  /** The name that `createOptimizer` and saved states use. */
  readonly name: string;
  /**
   * Step size of the next `step()`; finite and ≥ 0. Set it from a schedule before each step. Where there are groups, it
   * is that of the first; each has its own.
   */
  learningRate: number;
  /** The groups in their order; one, of all parameters, where none were given. */
  readonly groups: readonly OptimizerGroup[];
  /** Updates, in place, every parameter that has a gradient. */
  step(): void;
  /** Bytes of the CPU's memory that gradients and state take once all parameters have them, beside what is there already. */
  bytesToCome(): number;
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
 * gradient is skipped, and its step count does not move, as in PyTorch.
 */
export abstract class OptimizerBase<F extends OptimizerFields> implements Optimizer {
  readonly name: string;
  readonly groups: readonly Group<F>[];
  protected readonly fields: F;
  private readonly state = new Map<string, Slots>();

  /**
   * @throws UsageError when there are no parameters, one is given twice or does not require a gradient, or an
   * option, or that of a group, is unknown or out of range.
   */
  protected constructor(name: string, parameters: ParameterList, options: object, fields: F) {
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
      throw new UsageError(`${where}: the saved state is of optimizer ${JSON.stringify(saved.name)}`);
    }
    const given = [saved.hyperparameters, ...(saved.groups ?? [])];
    if (given.length !== this.groups.length) {
      throw new UsageError(
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
          `${where}: it has a parameter ${JSON.stringify(name)} that this optimizer does not have`,
        );
      }
      if (!Number.isSafeInteger(step) || step < 1) {
        throw new UsageError(
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
      if (!known.has(key)) throw new UsageError(`${where}: unexpected tensor ${JSON.stringify(key)}`);
    }
    // Kept when all of them are there: where memory ends halfway, none stays behind.
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

  /** Names of the state tensors that each parameter has under these hyper-parameters. */
  protected abstract slotNames(values: Values<F>): readonly string[];

  /** Value that a new state tensor is filled with. */
  protected initialSlotValue(_slot: string, _values: Values<F>): number {
    return 0;
  }

  /** Refuses hyper-parameters of groups that do not go together. */
  protected checkValues(_where: string, _groups: readonly Values<F>[]): void {}

  /** The update rule for one parameter; runs without gradient recording, in a scope of its own. */
  protected abstract update(update: Update<F>): void;

  /** All updates of one step; to be overridden where doing them together is faster. */
  protected apply(updates: readonly Update<F>[]): void {
    // A scope each, so that the temporaries of one parameter are gone before the next one makes its own.
    for (const update of updates) scope(() => this.update(update));
  }

  private slotsOf(name: string, parameter: Tensor, values: Values<F>): Slots {
    let slots = this.state.get(name);
    if (slots === undefined) {
      // As the parameter lies in memory.
      const make = (slot: string) => parameter.fullLike(this.initialSlotValue(slot, values));
      // Kept when all of them are there: where memory ends halfway, none stays behind.
      const tensors = keep(
        scope(() => new Map(this.slotNames(values).map((slot) => [slot, make(slot)] as const))),
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
export function slot(update: Pick<Update, "slots">, name: string): Tensor {
  const tensor = update.slots.tensors.get(name);
  if (tensor === undefined) throw new TorchError(`internal: optimizer state has no slot ${name}`);
  return tensor;
}

/** A group as an optimizer holds it. */
class Group<F extends OptimizerFields> implements OptimizerGroup {
  constructor(
    private readonly name: string,
    private readonly fields: F,
    public values: Values<F>,
    readonly parameters: ReadonlyMap<string, Tensor>,
  ) {}

  get learningRate(): number {
    return this.values.learningRate as number;
  }

  set learningRate(value: number) {
    const read = this.fields.learningRate.read(`${this.name} learningRate`, value);
    this.values = { ...this.values, learningRate: read };
  }
}

/** Parameters without names are numbered through all groups. */
function makeGroups<F extends OptimizerFields>(
  name: string,
  list: ParameterList,
  options: object,
  fields: F,
): Group<F>[] {
  const seen = new Map<Tensor, string>();
  const names = new Set<string>();
  const groups = groupsOf(list).map(({ parameters, ...own }) => {
    const named =
      parameters instanceof Map
        ? new Map(parameters as ReadonlyMap<string, Tensor>)
        : new Map(
            [...(parameters as Iterable<Tensor>)].map((tensor, at) => [String(names.size + at), tensor]),
          );
    for (const [parameter, tensor] of named) {
      checkParameter(name, parameter, tensor, seen.get(tensor));
      if (names.has(parameter)) {
        throw new UsageError(`${name}: two groups have a parameter ${JSON.stringify(parameter)}`);
      }
      seen.set(tensor, parameter);
      names.add(parameter);
    }
    return new Group(name, fields, readHyperparameters(name, { ...options, ...own }, fields), named);
  });
  if (names.size === 0) throw new UsageError(`${name}: there are no parameters to optimise`);
  return groups;
}

function groupsOf(list: ParameterList): ParameterGroup[] {
  if (list instanceof Map) return [{ parameters: list as ReadonlyMap<string, Tensor> }];
  const items = [...(list as Iterable<Tensor | ParameterGroup>)];
  const isGroup = (item: Tensor | ParameterGroup): item is ParameterGroup => !isTensor(item);
  return items.length > 0 && items.every(isGroup) ? items : [{ parameters: items as Tensor[] }];
}

function checkParameter(where: string, name: string, tensor: Tensor, twin: string | undefined): void {
  if (twin !== undefined) {
    throw new UsageError(
      `${where}: parameters ${JSON.stringify(twin)} and ${JSON.stringify(name)} are the same tensor`,
    );
  }
  if (!tensor.requiresGrad) {
    throw new UsageError(`${where}: parameter ${JSON.stringify(name)} does not require a gradient`);
  }
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
