import { dispose, isGradEnabled, keep, noGrad, scope, type DType, type Tensor } from "@astra-rl/torch";

/** `name.weight` of one norm, projection or embedding and, if present, `name.bias`. */
export interface Module {
  weight: Tensor;
  bias: Tensor | null;
}

/** Parameters in the form in which inference reads them, with their versions when that was made. */
interface Made {
  module: Module;
  versions: readonly (number | undefined)[];
}

/**
 * The parameters of a model by their modules. Without gradients, what each pass would make of them again is kept: views,
 * and casts of the small parameters of norms. Views of a model share one object.
 */
export class Modules {
  readonly #modules = new Map<string, Module>();
  readonly #turned: ReadonlyMap<string, Tensor>;
  readonly #casts = new Map<string, Made>();

  /** @param transposed modules whose weights are stored [in, out] */
  constructor(parameters: ReadonlyMap<string, Tensor>, transposed: Iterable<string>) {
    for (const [name, weight] of parameters) {
      if (!name.endsWith(".weight")) continue;
      const own = name.slice(0, -".weight".length);
      this.#modules.set(own, { weight, bias: parameters.get(`${own}.bias`) ?? null });
    }
    const turn = (name: string) => [name, keep(this.get(name).weight.t())] as const;
    this.#turned = noGrad(() => new Map(Array.from(transposed, turn)));
  }

  /** @param name of the parameters without ".weight" and ".bias" */
  get(name: string): Module {
    const found = this.#modules.get(name);
    if (found === undefined) throw new Error(`internal: the model has no parameter ${name}.weight`);
    return found;
  }

  /** A projection whose weight is stored [in, out], as [out, in]. */
  turned(name: string): Module {
    const module = this.get(name);
    if (isGradEnabled()) return { ...module, weight: module.weight.t() };
    return { ...module, weight: this.#turned.get(name)! };
  }

  /** A norm with parameters of this type. */
  cast(name: string, dtype: DType): Module {
    const module = this.get(name);
    const { weight, bias } = module;
    if (isGradEnabled() || weight.dtype === dtype) return module;
    const versions = [weight.version, bias?.version];
    const known = this.#casts.get(name);
    if (known?.module.weight.dtype === dtype) {
      if (known.versions.every((version, at) => version === versions[at])) return known.module;
      // In place, since a graph reads it where it is.
      noGrad(() => {
        known.module.weight.copy_(weight);
        known.module.bias?.copy_(bias!);
      });
      this.#casts.set(name, { module: known.module, versions });
      return known.module;
    }
    dispose(known?.module);
    const made = noGrad(() => scope(() => keep({ weight: weight.to(dtype), bias: bias && bias.to(dtype) })));
    this.#casts.set(name, { module: made, versions });
    return made;
  }

  /** Brings all casts up to date with their parameters. */
  refresh(): void {
    for (const [name, { module }] of this.#casts) noGrad(() => this.cast(name, module.weight.dtype));
  }

  /** Frees what it made; the parameters belong to the model. */
  dispose(): void {
    dispose(this.#turned);
    for (const { module } of this.#casts.values()) dispose(module);
    this.#casts.clear();
  }
}
