#!/usr/bin/env node
/**
 * Small models through a step of training and some decoding, in float32 and bfloat16: for processors, real or emulated, on
 * which the whole test run would take too long.
 *
 *   node scripts/smoke.mjs
 *   qemu-x86_64 -cpu Haswell "$(which node)" scripts/smoke.mjs
 *
 * Ends with status 1 where numbers differ from each other, or from those that the seeds give, by more than rounding.
 */
import { AdamW, engineInformation, noGrad, scope } from "@astra-rl/torch";
import { generate, initializeCausalLM, tokenLogprobs } from "@astra-rl/lm";

const common = { vocab_size: 96, bos_token_id: 0, eos_token_id: 0 };
const decoder = {
  ...common,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
};
const MODELS = {
  gpt2: { ...common, model_type: "gpt2", n_embd: 64, n_layer: 2, n_head: 4, n_positions: 64 },
  llama: { ...decoder, model_type: "llama", attention_bias: true },
  qwen2: { ...decoder, model_type: "qwen2" },
};
const ROWS = [
  { context: [0, 5, 9, 40], continuation: [7, 8, 33, 90, 2] },
  { context: [0, 5, 9], continuation: [41, 3, 12] },
  { context: [0, 77, 1, 1, 6, 20], continuation: [95] },
];

/** Log-probability of all continuations before and after a step, and how likely those are that are decoded then. */
function train(settings, computeDtype) {
  const model = initializeCausalLM(settings, 1, { computeDtype });
  const parameters = [...model.namedParameters().values()];
  for (const parameter of parameters) parameter.requiresGrad_();
  const optimizer = new AdamW(parameters, { learningRate: 1e-2, weightDecay: 0 });
  const total = () => tokenLogprobs(model, ROWS).sum();
  const sums = [0, 1].map((step) =>
    scope(() => {
      if (step === 1) return noGrad(() => total().item());
      const sum = total();
      sum.neg().backward();
      optimizer.step();
      return sum.item();
    }),
  );
  // What decoding says of its own tokens is what reading says of them.
  const prompts = ROWS.map(({ context }) => context);
  const { ids, logprobs } = generate(model, { decode: () => "" }, prompts, { maxNewTokens: 6, greedy: true });
  const read = scope(() =>
    noGrad(() =>
      tokenLogprobs(
        model,
        ids.map((own, row) => ({ context: prompts[row], continuation: own })),
      ),
    ).toArray(),
  );
  const apart = logprobs.flatMap((own, row) => own.map((value, at) => Math.abs(value - read[row][at])));
  optimizer.dispose();
  model.dispose();
  return { sums, apart: Math.max(...apart) };
}

const { isa, bf16, libtorch, coreType } = engineInformation();
console.log(
  `libtorch ${libtorch}, ${isa}${bf16 ? " with bfloat16" : ""}, BLAS for ${coreType ?? "its own choice"}`,
);
for (const [name, settings] of Object.entries(MODELS)) {
  const [wide, narrow] = [train(settings, "float32"), train(settings, "bfloat16")];
  const text = ({ sums }) => sums.map((sum) => sum.toFixed(4)).join(" → ");
  console.log(`${name}: log-probability of 9 tokens ${text(wide)} in float32, ${text(narrow)} in bfloat16`);
  console.log(
    `  decoding and reading differ by ${wide.apart.toExponential(1)} and ${narrow.apart.toExponential(1)}`,
  );
  const isLearning = [wide, narrow].every(({ sums: [before, after] }) => after > before + 5);
  const [first, second] = wide.sums.map((sum, at) => Math.abs(sum - narrow.sums[at]));
  if (!isLearning || first > 0.05 || second > 1 || wide.apart > 1e-4 || narrow.apart > 0.1) {
    console.error(
      `${name}: a step must raise the log-probability, and both types must agree, as must decoding and reading`,
    );
    process.exitCode = 1;
  }
}
console.log(process.exitCode === 1 ? "smoke: failed" : "smoke: passed");
