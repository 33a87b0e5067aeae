import {
  full,
  Generator,
  keep,
  noGrad,
  randn,
  scope,
  zeros,
  type Device,
  type DType,
  type Tensor,
} from "@astra-rl/torch";
import type { CausalLM } from "../causal-lm.js";
import { JsonFields } from "../json-fields.js";
import type { DecoderConfig } from "./decoder-config.js";
import { familyOf } from "./index.js";

export interface InitializeOptions {
  /** Default "float32". */
  dtype?: DType;
  /** Type of the matrix products. Default: that of the parameters. */
  computeDtype?: DType;
  /** Default "cpu". */
  device?: Device;
}

/**
 * An untrained model of any supported architecture, with its family's random initialization.
 *
 * @param settings contents of its config.json
 * @param seed determines every weight: the same seed and sizes give the same model
 */
export function initializeCausalLM(
  settings: Readonly<Record<string, unknown>>,
  seed: number,
  options: InitializeOptions = {},
): CausalLM {
  const { dtype = "float32", computeDtype = dtype, device = "cpu" } = options;
  const fields = new JsonFields(settings, "initializeCausalLM");
  const family = familyOf(fields);
  const config = family.parseConfig(fields);
  const generator = new Generator(seed);
  const deviationOf = deviations(config);
  const parameters = new Map<string, Tensor>();
  for (const [name, shape] of family.parameterShapes(config)) {
    const tensor = noGrad(() =>
      scope(() => {
        if (name.endsWith(".bias")) return zeros([...shape], { dtype, device });
        const isNorm = shape.length === 1;
        if (isNorm) return full([...shape], config.unitOffsetNorms ? 0 : 1, { dtype, device });
        // Always drawn in float32 on the CPU, so that a seed gives the same model everywhere.
        const drawn = randn([...shape], { generator }).mul_(deviationOf(name));
        return drawn.to({ dtype, device });
      }),
    );
    parameters.set(name, keep(tensor));
  }
  generator.dispose();
  return family.create(config, parameters, computeDtype);
}

/** Standard deviation of a parameter's initial values. */
function deviations({ raw, modules, residualDivisor }: DecoderConfig): (name: string) => number {
  const usual = new JsonFields(raw, "config").positive("initializer_range", { fallback: 0.02 });
  const { attentionOutput, down } = modules.layer;
  return (name) => {
    const endsWith = (module: string) => name.endsWith(`.${module}.weight`);
    return endsWith(attentionOutput) || endsWith(down) ? usual / residualDivisor : usual;
  };
}

/** Sizes of a GPT-2. */
export interface GPT2Sizes {
  vocabSize: number;
  contextLength: number;
  hiddenSize: number;
  layers: number;
  heads: number;
  /** Ids of the first and last token of a text. Default: none. */
  bosId?: number;
  eosId?: number;
}

/** An untrained GPT-2 of any size; weights normal with standard deviation 0.02, as in GPT-2. */
export function initializeGPT2(sizes: GPT2Sizes, seed: number, options: InitializeOptions = {}): CausalLM {
  return initializeCausalLM(
    {
      architectures: ["GPT2LMHeadModel"],
      model_type: "gpt2",
      activation_function: "gelu_new",
      vocab_size: sizes.vocabSize,
      n_positions: sizes.contextLength,
      n_embd: sizes.hiddenSize,
      n_layer: sizes.layers,
      n_head: sizes.heads,
      n_inner: null,
      layer_norm_epsilon: 1e-5,
      initializer_range: 0.02,
      // Set explicitly because Python would default to 0.1; this package never uses dropout here.
      attn_pdrop: 0,
      embd_pdrop: 0,
      resid_pdrop: 0,
      bos_token_id: sizes.bosId ?? null,
      eos_token_id: sizes.eosId ?? null,
      tie_word_embeddings: true,
    },
    seed,
    options,
  );
}
