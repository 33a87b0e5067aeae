import {
  autocastLayerNorm,
  autocastLinear,
  autocastRmsNorm,
  cast,
  checkpoint,
  claimThreads,
  dispose,
  embedding,
  isLoopable,
  keep,
  noGrad,
  scope,
  type Device,
  type DType,
  type Tensor,
} from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { requireNoAdapter, type Adapter, type Projection } from "../adapters/adapter.js";
import type { AttentionCache, CausalLM, ForwardOptions } from "../causal-lm.js";
import { activate, gated } from "./activations.js";
import { attend, attendCached, attentionBiases, slidingBiases } from "./attention.js";
import type { DecoderConfig, LayerModules } from "./decoder-config.js";
import { Modules } from "./modules.js";
import { rotated, RotaryTables, type Rotation, type RotarySettings } from "./rotary.js";

/** Inputs of a layer besides the hidden states. */
interface LayerInputs {
  /** In computeDtype; null = no rotary positions. */
  rotation: Rotation | null;
  biases: Tensor[];
  cache: AttentionCache | undefined;
  /** Tokens that the last layer computes; undefined = all. */
  places: Tensor | undefined;
}

/**
 * The model of every family, which differ only in their configurations. Results follow Hugging Face's.
 *
 * No dropout, even in training: a policy's log-probabilities must be those of the policy that sampled, otherwise ratios
 * and preference margins would measure noise.
 */
export class Decoder implements CausalLM {
  readonly dtype: DType;
  readonly device: Device;
  adapter: Adapter | null = null;

  /** False for a view, which must not free shared parameters. */
  #ownsParameters = true;
  /** Shared with views, like the tables. */
  #modules: Modules;
  /** The modules of each layer, collected once: names would be looked up for every token. */
  readonly #layers: readonly (LayerModules & { readonly prefix: string })[];
  /** By the settings of a layer; shared with views. */
  #tables: ReadonlyMap<RotarySettings, RotaryTables>;
  readonly #releaseThreads: () => void;

  /** @param parameters owned by the model from now on: freed by `dispose`, not by a scope */
  constructor(
    readonly config: DecoderConfig,
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
    if (config.projectionsTransposed) this.#layOutByOutput();
    keep(parameters);
    this.#modules = new Modules(parameters, config.projectionsTransposed ? this.projections().keys() : []);
    const { modules, contextLength } = config;
    this.#layers = Array.from({ length: config.layers }, (_, layer) => {
      const prefix = `${modules.layers}.${layer}.`;
      const named = Object.entries(modules.layer).map(([role, name]) => [role, prefix + name]);
      return { prefix, ...(Object.fromEntries(named) as LayerModules) };
    });
    const settings = new Set(this.#layers.flatMap((_, layer) => this.#rotaryOf(layer) ?? []));
    const place = { contextLength, dtype: computeDtype, device: this.device };
    this.#tables = new Map([...settings].map((each) => [each, new RotaryTables(each, place)]));
    this.#releaseThreads = claimThreads([...parameters.values()]);
  }

  namedParameters(): Map<string, Tensor> {
    return new Map(this.parameters);
  }

  projections(): Map<string, Projection> {
    const { modules, projectionsTransposed: transposed } = this.config;
    const others = [modules.embedding, modules.positions, modules.output];
    const projections = new Map<string, Projection>();
    for (const [name, { shape }] of this.parameters) {
      const own = name.slice(0, -".weight".length);
      if (shape.length !== 2 || others.includes(own)) continue;
      const [rows, columns] = shape as [number, number];
      const [output, input] = transposed ? [columns, rows] : [rows, columns];
      projections.set(own, { input, output, transposed });
    }
    return projections;
  }

  withAdapter(adapter: Adapter): CausalLM {
    requireNoAdapter(this, "withAdapter");
    const view = new Decoder(this.config, new Map(this.parameters), this.computeDtype);
    view.adapter = adapter;
    view.#modules.dispose();
    view.#tables = this.#tables;
    view.#modules = this.#modules;
    view.#ownsParameters = false;
    view.#releaseThreads();
    return view;
  }

  forward(ids: Tensor, options: ForwardOptions): Tensor {
    const { positions, cache, places } = options;
    const { modules, embeddingScale, slidingWindow, tiedEmbeddings: isProjection } = this.config;
    return scope(() => {
      const { heads, keyValueHeads } = this.config;
      const place = { heads, keyValueHeads, dtype: this.computeDtype, device: this.device };
      const full = attentionBiases(options, ids.size(-1), place);
      const isCut = cache === undefined && slidingWindow !== null && ids.size(-1) > slidingWindow;
      const sliding =
        isCut && this.#layers.some((_, layer) => this.config.slides(layer))
          ? slidingBiases(full, options, slidingWindow, place)
          : full;
      const rotations = new Map([...this.#tables].map(([key, tables]) => [key, tables.at(positions)]));
      let hidden = this.#embedded(modules.embedding, ids, { isProjection }); // [B, T, D]
      if (modules.positions !== undefined) hidden = hidden.add(this.#embedded(modules.positions, positions));
      // Not rounded to the type of the weights, unlike in transformers: copies in other types agree.
      if (embeddingScale !== 1) hidden = hidden.mul(embeddingScale);
      for (let layer = 0; layer < this.config.layers; layer++) {
        const settings = this.#rotaryOf(layer);
        const rotation = settings && rotations.get(settings)!;
        const turns = Object.values(rotation ?? {}) as Tensor[]; // in the order of Rotation
        const wanted = places !== undefined && layer === this.config.layers - 1 ? [places] : [];
        const inputs = [hidden, ...turns, ...wanted, ...(this.config.slides(layer) ? sliding : full)];
        hidden = scope(() =>
          this.#layer(layer, options, inputs, (input, ...rest) => {
            const [cosine, sine, queryFactor] = rest.splice(0, turns.length);
            const [chosen] = rest.splice(0, wanted.length);
            const given = rotation && { cosine: cosine!, sine: sine!, queryFactor };
            return this.#block(layer, input!, { rotation: given, biases: rest, cache, places: chosen });
          }),
        );
      }
      return this.#norm(modules.norm, hidden);
    });
  }

  logits(hidden: Tensor): Tensor {
    const { modules, tiedEmbeddings, logitDivisor } = this.config;
    const { weight } = this.#modules.get(tiedEmbeddings ? modules.embedding : modules.output);
    return scope(() => {
      const states = logitDivisor === 1 ? hidden : hidden.div(logitDivisor);
      return autocastLinear(states, weight, null, { dtype: this.computeDtype });
    });
  }

  copy(dtype: DType): CausalLM {
    requireNoAdapter(this, "copy");
    const copied = (given: Tensor) => (given.dtype === dtype ? given.clone() : given.to(dtype));
    const copies = noGrad(
      () => new Map([...this.parameters].map(([name, parameter]) => [name, copied(parameter)])),
    );
    return new Decoder(this.config, copies, dtype);
  }

  copyFrom(model: CausalLM): void {
    requireNoAdapter(model, "copyFrom");
    const sources = model.namedParameters();
    noGrad(() => {
      for (const [name, parameter] of this.parameters) {
        const source = sources.get(name);
        if (source === undefined || source.shape.join() !== parameter.shape.join()) {
          throw new UsageError(
            "shape-mismatch",
            `copyFrom: "${name}" must have shape [${parameter.shape.join(", ")}] in both models, ` +
              `but the other has ${source === undefined ? "no such parameter" : `[${source.shape.join(", ")}]`}`,
          );
        }
        parameter.copy_(source);
      }
    });
  }

  refresh(): void {
    this.#modules.refresh();
  }

  dispose(): void {
    if (!this.#ownsParameters) return;
    this.#releaseThreads();
    dispose(this.parameters);
    this.#modules.dispose();
    for (const tables of this.#tables.values()) tables.dispose();
  }

  /**
   * Replaces projections [in, out] by copies with output-major memory layout, which decoding reads fastest
   * (autocastLinear).
   */
  #layOutByOutput(): void {
    for (const name of this.projections().keys()) {
      const parameter = this.parameters.get(`${name}.weight`)!;
      scope(() => {
        const turned = noGrad(() => parameter.t().contiguous().t());
        if (turned.sharesStorageWith(parameter)) return;
        this.parameters.set(`${name}.weight`, keep(turned));
        parameter.dispose();
      });
    }
  }

  #rotaryOf(layer: number): RotarySettings | null {
    const { rotary, slidingRotary, rotates, slides } = this.config;
    if (!rotates(layer)) return null;
    return slidingRotary !== null && slides(layer) ? slidingRotary : rotary;
  }

  /**
   * Runs one layer of a forward pass, recomputed in the backward pass under gradient checkpointing.
   *
   * @param inputs every tensor that it uses besides its parameters
   */
  #layer(
    layer: number,
    { gradientCheckpointing = false, cache }: ForwardOptions,
    inputs: readonly Tensor[],
    run: (...inputs: Tensor[]) => Tensor,
  ): Tensor {
    // Recomputing a layer would append to the cache twice.
    if (!gradientCheckpointing || cache !== undefined) return run(...inputs);
    const { prefix } = this.#layers[layer]!;
    const own = [...this.parameters].flatMap(([name, tensor]) => (name.startsWith(prefix) ? [tensor] : []));
    const { adapter } = this;
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

  #block(layer: number, hidden: Tensor, inputs: LayerInputs): Tensor {
    const names = this.#layers[layer]!;
    const { places } = inputs;
    const attended = this.#attention(layer, this.#blockInput(names.attentionNorm, hidden), inputs);
    const residual = chosen(hidden, places);
    const output = chosen(attended, places);
    const middle = this.#added(names.attentionOutput, names.attentionOutputNorm, output, residual);
    const read = this.config.parallelResidual ? residual : middle;
    const expanded = this.#expanded(names, this.#blockInput(names.feedForwardNorm, read));
    return this.#added(names.down, names.feedForwardOutputNorm, expanded, middle);
  }

  /** Hidden states as the projections of a block read them. */
  #blockInput(norm: string | undefined, hidden: Tensor): Tensor {
    return norm === undefined ? cast(hidden, this.computeDtype) : this.#norm(norm, hidden);
  }

  /** The residual plus the output of a block's last projection, normed where the block has a norm behind it. */
  #added(projection: string, norm: string | undefined, input: Tensor, residual: Tensor): Tensor {
    const { residualScale } = this.config;
    if (norm === undefined && residualScale === 1) return this.#projected(projection, input, residual);
    const projected = this.#projected(projection, input);
    const added = norm === undefined ? projected : this.#norm(norm, projected, this.#residualDtype);
    return residual.add(residualScale === 1 ? added : cast(added, this.#residualDtype).mul(residualScale));
  }

  #attention(layer: number, input: Tensor, { rotation, biases, cache }: LayerInputs): Tensor {
    const { heads, keyValueHeads, headDimension: E, queryKeyNorm, fusion } = this.config;
    const { query, key, value, queryKeyValue, queryNorm, keyNorm } = this.#layers[layer]!;
    const scale = this.config.attentionScale(layer);
    const window = this.config.slides(layer) ? this.config.slidingWindow : null;
    const [B, T] = input.shape as [number, number, number];
    const attended = (queries: Tensor, keys: Tensor, values: Tensor) =>
      cache === undefined
        ? attend(queries, keys, values, biases, scale)
        : attendCached(queries, cache.append(layer, keys, values), scale, window);

    let states: Tensor[]; // query, key and value, [B, T, H·E] each; "by head": [B, T, H, E] each
    if (queryKeyValue === undefined) {
      states = [query!, key!, value!].map((name) => this.#projected(name, input));
    } else if (fusion === "by head") {
      states = this.#projected(queryKeyValue, input).view([B, T, heads, 3, E]).unbind(3);
    } else {
      const all = this.#projected(queryKeyValue, input);
      // With a cache, fewer calls are made. Without one each is split from [B, T, …] separately, so that gradients are
      // joined by one contiguous copy.
      if (cache !== undefined && rotation === null) {
        const parts = all.view([B, T, 3, heads, E]).permute([2, 0, 3, 1, 4]);
        return attended(...(parts.unbind(0) as [Tensor, Tensor, Tensor]));
      }
      const sizes = [heads, keyValueHeads, keyValueHeads].map((count) => count * E);
      states = all.split(sizes, -1);
    }
    // With one token per row, its heads lie as attention reads them.
    const isOne = T === 1 && fusion !== "by head";
    const isPlaced = isOne && !isLoopable({ device: this.device, dtype: this.computeDtype });
    const split = (given: Tensor, count: number, isByHead = isPlaced) =>
      fusion === "by head" ? given : given.view(isByHead ? [B, count, T, E] : [B, T, count, E]);
    const placed = (given: Tensor, norm: string | undefined, count: number) => {
      const normed = (over: typeof queryKeyNorm, part: Tensor) =>
        norm !== undefined && queryKeyNorm === over ? this.#norm(norm, part) : part;
      const scaled = normed("head", split(normed("projection", given), count));
      const turned = rotation === null ? scaled : rotated(scaled, rotation, this.#rotaryOf(layer)!.pairs);
      return isPlaced ? turned : turned.transpose(1, 2); // [B, H, T, E]
    };
    const queries = placed(states[0]!, queryNorm, heads);
    const factor = rotation?.queryFactor?.unsqueeze(1); // [B, 1, T, 1]
    return attended(
      factor === undefined ? queries : queries.mul(factor),
      placed(states[1]!, keyNorm, keyValueHeads),
      isOne ? split(states[2]!, keyValueHeads, true) : split(states[2]!, keyValueHeads).transpose(1, 2),
    );
  }

  /** The hidden states within the feed-forward block, gated where there is a gate: [B, T, D] → [B, T, I]. */
  #expanded({ gateUp, gate, up }: LayerModules, input: Tensor): Tensor {
    const { activation } = this.config;
    if (gateUp !== undefined) {
      return gated(activation, ...(this.#projected(gateUp, input).chunk(2, -1) as [Tensor, Tensor]));
    }
    if (gate === undefined) return activate(activation, this.#projected(up!, input));
    return gated(activation, this.#projected(gate, input), this.#projected(up!, input));
  }

  /** An RMS norm, or a layer norm where it has a bias. */
  #norm(name: string, x: Tensor, dtype = this.computeDtype): Tensor {
    const { normEpsilon: epsilon, unitOffsetNorms } = this.config;
    const inside = this.#residualDtype;
    // The CPU's kernel reads parameters of any type.
    const { weight, bias } =
      this.device === "cpu" ? this.#modules.get(name) : this.#modules.cast(name, inside);
    if (bias !== null) return autocastLayerNorm(x, weight, bias, { epsilon, dtype });
    // 1 + weight would be rounded in 16 bits.
    const factor = unitOffsetNorms ? cast(weight, inside).add(1) : weight;
    return autocastRmsNorm(x, factor, { epsilon, dtype });
  }

  /**
   * Embedding lookup in the type of the residual stream: [B, T] → [B, T, D]. If the table is also the output
   * projection, it gets a dense gradient from there; the gradient of this lookup is then added row by row
   * (`sparse`) instead of through a second dense tensor of zeros.
   */
  #embedded(name: string, indices: Tensor, { isProjection = false } = {}): Tensor {
    const { weight: table } = this.#modules.get(name);
    const sparse = isProjection && table.device === "cpu";
    return cast(embedding(table, indices, { sparse }), this.#residualDtype);
  }

  /**
   * Applies a projection, plus the adapter's term if there is one. With a residual, returns the sum in the
   * residual's type.
   *
   * @param input [..., in]
   * @param residual [..., out]
   */
  #projected(name: string, input: Tensor, residual: Tensor | null = null): Tensor {
    const { projectionsTransposed } = this.config;
    const { weight, bias } = projectionsTransposed ? this.#modules.turned(name) : this.#modules.get(name);
    const output = autocastLinear(input, weight, bias, {
      dtype: this.computeDtype,
      resultDtype: residual?.dtype ?? this.computeDtype,
      residual,
    });
    const delta = this.adapter?.delta(name, input);
    return delta ? output.add(delta) : output;
  }

  /**
   * Type of the residual stream: float32 if the products are in 16 bits. Sums over many layers would lose
   * more precision than the products do, and norms over 16-bit numbers are slower.
   */
  get #residualDtype(): DType {
    return this.computeDtype === "float64" ? "float64" : "float32";
  }
}

/** The hidden states of the selected tokens, [B, T, D] → [1, N, D]; all of them if `places` is undefined. */
function chosen(states: Tensor, places: Tensor | undefined): Tensor {
  if (places === undefined) return states;
  return states
    .reshape([-1, states.size(-1)])
    .indexSelect(0, places)
    .unsqueeze(0);
}
