const sizes = { vocab_size: 53, bos_token_id: 1, eos_token_id: 1, initializer_range: 0.3 };
const rotary = {
  ...sizes,
  max_position_embeddings: 64,
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
};
/** Name, config.json and projections that an adapter may change, of a small model of each kind. */
export const smallModels: [name: string, settings: Record<string, unknown>, targetModules: string[]][] = [
  [
    "GPT-2",
    {
      ...sizes,
      architectures: ["GPT2LMHeadModel"],
      model_type: "gpt2",
      n_positions: 64,
      n_embd: 16,
      n_layer: 3,
      n_head: 4,
    },
    ["c_attn", "c_proj"],
  ],
  ["Llama", { ...rotary, architectures: ["LlamaForCausalLM"], model_type: "llama" }, ["q_proj", "down_proj"]],
  [
    "Qwen2",
    { ...rotary, architectures: ["Qwen2ForCausalLM"], model_type: "qwen2", tie_word_embeddings: true },
    ["v_proj"],
  ],
  [
    "Qwen3",
    { ...rotary, architectures: ["Qwen3ForCausalLM"], model_type: "qwen3", head_dim: 6 },
    ["q_proj", "up_proj"],
  ],
  [
    "Mistral with a window of 6",
    { ...rotary, architectures: ["MistralForCausalLM"], model_type: "mistral", sliding_window: 6 },
    ["k_proj", "o_proj"],
  ],
  [
    "Gemma 3 with a window of 6",
    {
      ...rotary,
      architectures: ["Gemma3ForCausalLM"],
      model_type: "gemma3_text",
      head_dim: 6,
      sliding_window: 6,
      sliding_window_pattern: 2,
    },
    ["v_proj", "up_proj"],
  ],
  [
    "Phi-3 that rotates half of each head",
    { ...rotary, architectures: ["Phi3ForCausalLM"], model_type: "phi3", partial_rotary_factor: 0.5 },
    ["qkv_proj", "gate_up_proj"],
  ],
  ["OLMo 2", { ...rotary, architectures: ["Olmo2ForCausalLM"], model_type: "olmo2" }, ["k_proj", "o_proj"]],
  [
    "SmolLM3",
    {
      ...rotary,
      architectures: ["SmolLM3ForCausalLM"],
      model_type: "smollm3",
      no_rope_layer_interval: 2,
    },
    ["q_proj", "down_proj"],
  ],
  [
    "Granite",
    {
      ...rotary,
      architectures: ["GraniteForCausalLM"],
      model_type: "granite",
      embedding_multiplier: 3,
      residual_multiplier: 0.5,
      attention_multiplier: 0.3,
      logits_scaling: 2,
    },
    ["q_proj", "down_proj"],
  ],
  [
    "Ministral 3",
    {
      ...rotary,
      architectures: ["Ministral3ForCausalLM"],
      model_type: "ministral3",
      head_dim: 6,
      sliding_window: 6,
      rope_parameters: {
        rope_type: "yarn",
        factor: 4,
        original_max_position_embeddings: 5,
        llama_4_scaling_beta: 0.5,
      },
    },
    ["q_proj", "up_proj"],
  ],
  [
    "OLMo 3",
    {
      ...rotary,
      architectures: ["Olmo3ForCausalLM"],
      model_type: "olmo3",
      sliding_window: 6,
      layer_types: ["sliding_attention", "full_attention", "sliding_attention"],
    },
    ["k_proj", "o_proj"],
  ],
  [
    "Seed-OSS",
    { ...rotary, architectures: ["SeedOssForCausalLM"], model_type: "seed_oss", head_dim: 6 },
    ["v_proj", "gate_proj"],
  ],
  [
    "GLM-4",
    { ...rotary, architectures: ["Glm4ForCausalLM"], model_type: "glm4", head_dim: 8 },
    ["q_proj", "gate_up_proj"],
  ],
  [
    "GPT-NeoX",
    { ...rotary, architectures: ["GPTNeoXForCausalLM"], model_type: "gpt_neox", rotary_pct: 0.5 },
    ["query_key_value", "dense_4h_to_h"],
  ],
];
