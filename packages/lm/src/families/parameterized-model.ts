import {
  autocastLinear,
  cast,
  checkpoint,
  claimThreads,
  dispose,
  embedding,
  keep,
  noGrad,
  UsageError,
  type Device,
  type DType,
  type Tensor,
} from "@astra-rl/torch";
import type { Adapter, Projection } from "../adapter.js";
import type { CausalLM, ForwardOptions, ModelConfig } from "../causal-lm.js";
import type { CausalFamily } from "./family.js";

/** The parameters of one norm, projection or embedding: `name.weight` and, if present, `name.bias`. */
interface Module {
  weight: Tensor;
  bias: Tensor | null;
}

/** Parameter handling shared by all families: ownership, types, copies. Subclasses add the forward pass. */
export abstract class ParameterizedModel implements CausalLM {
  readonly dtype: DType;
  readonly device: Device;

  protected abstract readonly family: CausalFamily;
  #adapter: Adapter | null = null;
  #ownsParameters = true;
  readonly #modules = new Map<string, Module>();
  readonly #releaseThreads: () => void;

  /** @param parameters owned by the model from now on: freed by `dispose`, not by a scope */
  constructor(
    readonly config: ModelConfig,
    private readonly parameters: Map<string, Tensor>,
    /**
     * With float32 parameters and bfloat16 products, weights are rounded when multiplied (autocastLinear), so
     * the float32 master weights get float32 gradients.
     */
    readonly computeDtype: DType,
  ) {
    const [first] = parameters.values();
    if (first === undefined) throw new Error("internal: a model without parameters");
    this.dtype = first.dtype;
    this.device = first.device;
    keep(parameters);
    for (const [name, weight] of parameters) {
      if (!name.endsWith(".weight")) continue;
      const own = name.slice(0, -".weight".length);
      this.#modules.set(own, { weight, bias: parameters.get(`${own}.bias`) ?? null });
    }
    this.#releaseThreads = claimThreads([...parameters.values()]);
  }

  namedParameters(): Map<string, Tensor> {
    return new Map(this.parameters);
  }

  projections(): Map<string, Projection> {
    const embeddings = /(^|\.)(wte|wpe|embed_tokens|embed_in|lm_head|embed_out)\.weight$/;
    const projections = new Map<string, Projection>();
    for (const [name, { shape }] of this.parameters) {
      if (shape.length !== 2 || embeddings.test(name)) continue;
      const [rows, columns] = shape as [number, number];
      const transposed = this.family.projectionsTransposed;
      const [output, input] = transposed ? [columns, rows] : [rows, columns];
      projections.set(name.slice(0, -".weight".length), { input, output, transposed });
    }
    return projections;
  }

  withAdapter(adapter: Adapter): CausalLM {
    const view = this.family.create(this.config, new Map(this.parameters), this.computeDtype);
    if (!(view instanceof ParameterizedModel))
      throw new Error("internal: a family made a model of another kind");
    view.#adapter = adapter;
    view.#ownsParameters = false;
    view.#releaseThreads();
    return view;
  }

  abstract forward(ids: Tensor, options: ForwardOptions): Tensor;
  abstract logits(hidden: Tensor): Tensor;

  copy(dtype: DType): CausalLM {
    const copies = noGrad(
      () =>
        new Map(
          [...this.parameters].map(([name, parameter]) => {
            return [name, parameter.dtype === dtype ? parameter.clone() : parameter.to(dtype)] as const;
          }),
        ),
    );
    return this.family.create(this.config, copies, dtype);
  }

  copyFrom(model: CausalLM): void {
    const sources = model.namedParameters();
    noGrad(() => {
      for (const [name, parameter] of this.parameters) {
        const source = sources.get(name);
        if (source === undefined || source.shape.join() !== parameter.shape.join()) {
          throw new UsageError(
            `copyFrom: "${name}" must have shape [${parameter.shape.join(", ")}] in both models, ` +
              `but the other has ${source === undefined ? "no such parameter" : `[${source.shape.join(", ")}]`}`,
          );
        }
        parameter.copy_(source);
      }
    });
  }

  /**
   * Runs one layer of a forward pass, recomputed in the backward pass under gradient checkpointing.
   *
   * @param prefix common to the names of all parameters and projections that the layer uses
   * @param inputs every other tensor that it uses
   */
  protected layer(
    prefix: string,
    { gradientCheckpointing = false, cache }: ForwardOptions,
    inputs: readonly Tensor[],
    run: (...inputs: Tensor[]) => Tensor,
  ): Tensor {
    // Recomputing a layer would append to the cache twice.
    if (!gradientCheckpointing || cache !== undefined) return run(...inputs);
    const own = [...this.parameters].flatMap(([name, tensor]) => (name.startsWith(prefix) ? [tensor] : []));
    const adapter = this.#adapter;
    if (adapter === null) return checkpoint(run, inputs, own);
    // By the backward pass the adapter may have left training mode; the recomputed values must be the same.
    const { training } = adapter;
    const again = (...given: Tensor[]) => {
      const present = adapter.training;
      adapter.training = training;
      try {
        return run(...given);
      } finally {
        adapter.training = present;
      }
    };
    return checkpoint(again, inputs, [...own, ...adapter.parameters(prefix)]);
  }

  /** The tokens that a layer selects: in the last layer the `places` of the pass, if given. */
  protected placesOf(layer: number, { places }: ForwardOptions): Tensor[] {
    return places !== undefined && layer === this.config.layers - 1 ? [places] : [];
  }

  /** The hidden states of the selected tokens, [B, T, D] → [1, N, D]; all of them if `places` is undefined. */
  protected chosen(states: Tensor, places: Tensor | undefined): Tensor {
    if (places === undefined) return states;
    return states
      .reshape([-1, states.size(-1)])
      .indexSelect(0, places)
      .unsqueeze(0);
  }

  /** False for a view with an adapter, which must not free shared parameters. */
  protected get ownsParameters(): boolean {
    return this.#ownsParameters;
  }

  dispose(): void {
    if (!this.#ownsParameters) return;
    this.#releaseThreads();
    dispose(this.parameters);
  }

  /** @param name of the parameters without ".weight" and ".bias" */
  protected module(name: string): Module {
    const found = this.#modules.get(name);
    if (found === undefined) throw new Error(`internal: the model has no parameter ${name}.weight`);
    return found;
  }

  /**
   * Embedding lookup in the type of the residual stream: [B, T] → [B, T, D]. If the table is also the output
   * projection, it gets a dense gradient from there; the gradient of this lookup is then added row by row
   * (`sparse`) instead of through a second dense tensor of zeros.
   */
  protected embedded(name: string, indices: Tensor, { isProjection = false } = {}): Tensor {
    const { weight: table } = this.module(name);
    return cast(
      embedding(table, indices, { sparse: isProjection && table.device === "cpu" }),
      this.residualDtype,
    );
  }

  /**
   * Applies a projection, plus the adapter's term if there is one. With a residual, returns the sum in the
   * residual's type.
   *
   * @param input [..., in]
   * @param residual [..., out]
   */
  protected projected(name: string, input: Tensor, residual: Tensor | null = null): Tensor {
    const { weight, bias } = this.module(name);
    const output = autocastLinear(input, weight, bias, {
      dtype: this.computeDtype,
      resultDtype: residual?.dtype ?? this.computeDtype,
      transposed: this.family.projectionsTransposed,
      residual,
    });
    const delta = this.#adapter?.delta(name, input);
    return delta ? output.add(delta) : output;
  }

  /**
   * Type of the residual stream: float32 if the products are in 16 bits. Sums over many layers would lose
   * more precision than the products do, and norms over 16-bit numbers are slower.
   */
  protected get residualDtype(): DType {
    return this.computeDtype === "float64" ? "float64" : "float32";
  }
}
