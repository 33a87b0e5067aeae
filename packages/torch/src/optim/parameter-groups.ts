import { UsageError } from "@astra-rl/base";
import { isTensor } from "../operator-call.js";
import type { Tensor } from "../tensor.js";
import { readHyperparameters, type Field, type Fields, type Values } from "./hyperparameters.js";

/** Tensors in a fixed order, or by name (the saved state then uses the names). */
export type Parameters = Iterable<Tensor> | ReadonlyMap<string, Tensor>;

/**
 * Parameters with their own hyper-parameters, like PyTorch's `param_groups`; missing values are taken from the
 * optimizer's options.
 */
export interface ParameterGroup {
  parameters: Parameters;
  /** Step size. */
  learningRate?: number;
  [hyperparameter: string]: unknown;
}

/** Parameters to optimize, or groups of them. */
export type ParameterList = Parameters | Iterable<ParameterGroup>;

/** Parameters that share their hyper-parameters. */
export interface OptimizerGroup {
  /** Step size of the next `step()`; finite and ≥ 0. */
  learningRate: number;
}

/** The one field that every optimizer has. */
export type OptimizerFields = Fields & { learningRate: Field<number> };

/** Internal state of a group. */
export class Group<F extends OptimizerFields> implements OptimizerGroup {
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

/** Parameters without names are numbered across all groups. */
export function makeGroups<F extends OptimizerFields>(
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
        throw new UsageError(
          "duplicate-parameter",
          `${name}: two groups have a parameter ${JSON.stringify(parameter)}`,
        );
      }
      seen.set(tensor, parameter);
      names.add(parameter);
    }
    return new Group(name, fields, readHyperparameters(name, { ...options, ...own }, fields), named);
  });
  if (names.size === 0) throw new UsageError("no-parameters", `${name}: there are no parameters to optimise`);
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
      "shared-tensor",
      `${where}: parameters ${JSON.stringify(twin)} and ${JSON.stringify(name)} are the same tensor`,
    );
  }
  if (!tensor.requiresGrad) {
    throw new UsageError(
      "requires-no-gradient",
      `${where}: parameter ${JSON.stringify(name)} does not require a gradient`,
    );
  }
}
