import { NotFiniteError } from "@astra-rl/base";
import { noGrad, tensor } from "@astra-rl/torch";
import { expect, it } from "vitest";
import { Codec, generate, loadCausalLM, type CausalLM, type Sampling } from "../../src/index.js";
import { goldenFolder } from "../golden/gpt2.js";

/** The golden GPT-2 with states that overflow from a position on. */
async function overflowing(from: number): Promise<{ model: CausalLM; codec: Codec }> {
  const { model, tokenizer } = await loadCausalLM(goldenFolder);
  const positions = model.namedParameters().get("transformer.wpe.weight")!;
  const [rows, width] = positions.shape as [number, number];
  noGrad(() => {
    const huge = tensor(new Float32Array((rows - from) * width).fill(3e38), { shape: [rows - from, width] });
    positions.narrow(0, from, rows - from).copy_(huge);
    huge.dispose();
  });
  return { model, codec: Codec.of(tokenizer) };
}

it.each<[string, Sampling]>([
  ["plain", { maxNewTokens: 12 }],
  ["greedy", { maxNewTokens: 12, greedy: true }],
  ["top-k", { maxNewTokens: 12, topK: 5 }],
  ["top-p", { maxNewTokens: 12, topP: 0.5 }],
])("reports non-finite logits from a later position on: %s", async (_, sampling) => {
  const { model, codec } = await overflowing(8);
  const keys = [{ seed: 0, stream: "t", episode: 0, node: 0 }];
  try {
    expect(() => generate(model, codec, [codec.begin("Hello")], sampling, keys)).toThrow(NotFiniteError);
    expect(() => generate(model, codec, [codec.begin("Hello")], sampling, keys)).toThrow(
      "the model gives no finite logits (NaN)",
    );
  } finally {
    model.dispose();
  }
});
