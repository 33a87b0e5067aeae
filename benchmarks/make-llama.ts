/**
 * A Llama-shaped checkpoint of any size, stored in bfloat16, with random weights and a byte-level tokenizer learned from the
 * prompts: for testing a size without a download. Its texts are meaningless.
 *
 *     npx tsx benchmarks/make-llama.ts --prompts FILE.json --output DIR [--hidden 2048] [--intermediate 5632]
 *         [--layers 22] [--heads 32] [--key-value-heads 4] [--vocabulary 32000] [--seed 0]
 *
 * The defaults are the shape of TinyLlama (Zhang et al. 2024, arXiv 2401.02385), 1.1 billion parameters.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { keep, manualSeed, noGrad, ones, randn, scope, writeSafetensors, type Tensor } from "@astra-rl/torch";
import { Tokenizer } from "@astra-rl/lm";
import { trainTokenizer } from "@astra-rl/world";

const { values } = parseArgs({
  options: {
    prompts: { type: "string" },
    output: { type: "string" },
    hidden: { type: "string", default: "2048" },
    intermediate: { type: "string", default: "5632" },
    layers: { type: "string", default: "22" },
    heads: { type: "string", default: "32" },
    "key-value-heads": { type: "string", default: "4" },
    vocabulary: { type: "string", default: "32000" },
    seed: { type: "string", default: "0" },
  },
});
if (values.prompts === undefined || values.output === undefined) {
  console.error("usage: make-llama.ts --prompts FILE.json --output DIR [--hidden N] [--layers N] …");
  process.exit(2);
}
const LEARNED_TOKENS = 4096;
const hidden = Number(values.hidden);
const intermediate = Number(values.intermediate);
const layers = Number(values.layers);
const heads = Number(values.heads);
const keyValueHeads = Number(values["key-value-heads"]);
const vocabulary = Number(values.vocabulary);
const width = (hidden / heads) * keyValueHeads;

manualSeed(Number(values.seed));
const tensors = new Map<string, Tensor>();
const matrix = (name: string, rows: number, columns: number) =>
  void tensors.set(
    name,
    noGrad(() => keep(scope(() => randn([rows, columns]).mul(0.02).to("bfloat16")))),
  );
const scale = (name: string) => void tensors.set(name, keep(ones([hidden], { dtype: "bfloat16" })));
matrix("model.embed_tokens.weight", vocabulary, hidden);
for (let layer = 0; layer < layers; layer++) {
  const prefix = `model.layers.${layer}`;
  scale(`${prefix}.input_layernorm.weight`);
  matrix(`${prefix}.self_attn.q_proj.weight`, hidden, hidden);
  matrix(`${prefix}.self_attn.k_proj.weight`, width, hidden);
  matrix(`${prefix}.self_attn.v_proj.weight`, width, hidden);
  matrix(`${prefix}.self_attn.o_proj.weight`, hidden, hidden);
  scale(`${prefix}.post_attention_layernorm.weight`);
  matrix(`${prefix}.mlp.gate_proj.weight`, intermediate, hidden);
  matrix(`${prefix}.mlp.up_proj.weight`, intermediate, hidden);
  matrix(`${prefix}.mlp.down_proj.weight`, hidden, intermediate);
}
scale("model.norm.weight");
matrix("lm_head.weight", vocabulary, hidden);

const { output } = values;
mkdirSync(output, { recursive: true });
writeSafetensors(join(output, "model.safetensors"), tensors, { format: "pt" });
const parameters = [...tensors.values()].reduce((sum, tensor) => sum + tensor.numel(), 0);
for (const tensor of tensors.values()) tensor.dispose();

const encode = (value: object) => new TextEncoder().encode(JSON.stringify(value));
const { tokenizer } = trainTokenizer(
  JSON.parse(readFileSync(values.prompts, "utf8")) as string[],
  LEARNED_TOKENS,
);
const end = "<|endoftext|>";
const made = Tokenizer.fromFiles(
  new Map([
    ["tokenizer.json", encode(tokenizer)],
    [
      "tokenizer_config.json",
      encode({ tokenizer_class: "PreTrainedTokenizerFast", bos_token: end, eos_token: end }),
    ],
  ]),
);
await made.save(output);
const config = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  hidden_size: hidden,
  intermediate_size: intermediate,
  num_hidden_layers: layers,
  num_attention_heads: heads,
  num_key_value_heads: keyValueHeads,
  vocab_size: vocabulary,
  max_position_embeddings: 2048,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  hidden_act: "silu",
  tie_word_embeddings: false,
  torch_dtype: "bfloat16",
  bos_token_id: made.eosId,
  eos_token_id: made.eosId,
};
writeFileSync(join(output, "config.json"), JSON.stringify(config, null, 2));
console.error(`saved ${output}: ${parameters.toLocaleString("en-US")} parameters in bfloat16`);
