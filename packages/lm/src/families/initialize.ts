import {
  full,
  Generator,
  keep,
  noGrad,
  randn,
  scope,
  type Device,
  type DType,
  type Tensor,
} from "@astra-rl/torch";
import type { CausalLM, ModelConfig } from "../causal-lm.js";
import { JsonFields } from "../json-fields.js";
import type { CausalFamily } from "./family.js";
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
  return family.create(config, initialParameters(family, config, { seed, dtype, device }), computeDtype);
}

function initialParameters(
  family: CausalFamily,
  config: ModelConfig,
  options: { seed: number; dtype: DType; device: Device },
): Map<string, Tensor> {
  const { seed, dtype, device } = options;
  const generator = new Generator(seed);
  const parameters = new Map<string, Tensor>();
  for (const [name, shape] of family.parameterShapes(config)) {
    const value = family.initialValue(name, config);
    const tensor = noGrad(() =>
      scope(() =>
        // Always drawn in float32 on the CPU, so that a seed gives the same model everywhere.
        "constant" in value
          ? full([...shape], value.constant, { dtype, device })
          : randn([...shape], { generator })
              .mul_(value.deviation)
              .to({ dtype, device }),
      ),
    );
    parameters.set(name, keep(tensor));
  }
  generator.dispose();
  return parameters;
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
