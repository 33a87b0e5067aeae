import { describeValue, UsageError } from "../errors.js";
import { keep, noGrad } from "../scope.js";
import type { Tensor } from "../tensor.js";

/**
 * Base of everything that owns parameters.
 *
 * A subclass registers its parameters and children in its constructor, by name:
 *
 *     this.weight = this.registerParameter("weight", initial);
 *     this.output = this.registerModule("output", new Linear(8, 2, { generator }));
 *
 * Registered parameters are taken out of every enclosing scope: they live until `dispose()` of the module.
 */
export abstract class Module {
  private readonly ownParameters = new Map<string, Tensor>();
  private readonly ownChildren = new Map<string, Module>();
  private trainingFlag = true;

  /** Whether layers that differ between training and inference (dropout) behave as in training. Starts true. */
  get training(): boolean {
    return this.trainingFlag;
  }

  /** Puts this module and everything below it in training mode. */
  train(mode = true): this {
    this.trainingFlag = mode;
    for (const child of this.ownChildren.values()) child.train(mode);
    return this;
  }

  /** Puts this module and everything below it in inference mode. */
  eval(): this {
    return this.train(false);
  }

  /** The direct children by name, in the order of registration. */
  children(): ReadonlyMap<string, Module> {
    return this.ownChildren;
  }

  /**
   * All parameters by dotted path (`layers.0.weight`), own ones first, then each child's. A tensor that is
   * registered at two places (tied weights) appears once, under its first name.
   */
  namedParameters(): Map<string, Tensor> {
    const named = new Map<string, Tensor>();
    this.collect("", named, new Set());
    return named;
  }

  /** The values of `namedParameters()`. */
  parameters(): Tensor[] {
    return [...this.namedParameters().values()];
  }

  /**
   * Copies values into the parameters, converting dtype and device. Nothing changes when it throws.
   * @throws UsageError when a parameter is missing from `values`, has another shape, or `values` has more.
   */
  loadParameters(values: ReadonlyMap<string, Tensor>): void {
    const named = this.namedParameters();
    const where = `${this.constructor.name} parameters`;
    const missing = [...named.keys()].filter((name) => !values.has(name));
    const unexpected = [...values.keys()].filter((name) => !named.has(name));
    if (missing.length > 0) throw new UsageError(`${where}: missing ${missing.join(", ")}`);
    if (unexpected.length > 0) throw new UsageError(`${where}: there is no ${unexpected.join(", no ")}`);
    for (const [name, parameter] of named) {
      const { shape } = values.get(name)!;
      if (shape.join() !== parameter.shape.join()) {
        throw new UsageError(
          `${where}: ${name} must have shape ${describeValue(parameter.shape)}, got ${describeValue(shape)}`,
        );
      }
    }
    noGrad(() => {
      for (const [name, parameter] of named) parameter.copy_(values.get(name)!);
    });
  }

  /** Frees the parameters of this module and of everything below it. */
  dispose(): void {
    for (const parameter of this.parameters()) parameter.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Makes `tensor` a parameter: it requires a gradient and belongs to this module from now on. */
  protected registerParameter(name: string, tensor: Tensor): Tensor {
    this.checkName(name);
    this.ownParameters.set(name, keep(tensor).requiresGrad_());
    return tensor;
  }

  /** Makes `module` a child; its parameters appear here as `<name>.<parameter>`. */
  protected registerModule<M extends Module>(name: string, module: M): M {
    this.checkName(name);
    this.ownChildren.set(name, module);
    return module;
  }

  private checkName(name: string): void {
    if (name === "" || this.ownParameters.has(name) || this.ownChildren.has(name)) {
      throw new UsageError(
        `${this.constructor.name}: a parameter's or child's name must be new and not empty, got ${describeValue(name)}`,
      );
    }
  }

  private collect(prefix: string, named: Map<string, Tensor>, seen: Set<Tensor>): void {
    for (const [name, tensor] of this.ownParameters) {
      if (seen.has(tensor)) continue;
      seen.add(tensor);
      named.set(prefix + name, tensor);
    }
    for (const [name, child] of this.ownChildren) child.collect(`${prefix}${name}.`, named, seen);
  }
}
