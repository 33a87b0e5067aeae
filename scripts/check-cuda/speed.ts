import { AdamW, noGrad, randn, scope, synchronize, type Device } from "@astra-rl/torch";
import {
  GenerationSession,
  initializeCausalLM,
  initializeGPT2,
  loadCausalLM,
  tokenLogprobs,
  type CausalLM,
} from "@astra-rl/lm";
import { time } from "../../benchmarks/measure.js";
import { goldenFolder } from "../../packages/lm/test/golden/gpt2.js";
import { figure, type Row } from "./table.js";

const CONTEXT = 64;
const NEW = 64;

/** Published sizes, with random weights in bfloat16. */
export const speedModels: [name: string, create: (device: Device) => CausalLM][] = [
  [
    "GPT-2 124M",
    (device) =>
      initializeGPT2({ vocabSize: 50257, contextLength: 1024, hiddenSize: 768, layers: 12, heads: 12 }, 0, {
        device,
        dtype: "bfloat16",
      }),
  ],
  [
    "Llama 1.1B",
    (device) =>
      initializeCausalLM(
        {
          architectures: ["LlamaForCausalLM"],
          model_type: "llama",
          vocab_size: 32000,
          hidden_size: 2048,
          intermediate_size: 5632,
          num_hidden_layers: 22,
          num_attention_heads: 32,
          num_key_value_heads: 4,
          max_position_embeddings: 2048,
          rms_norm_eps: 1e-5,
          rope_theta: 10000,
          tie_word_embeddings: false,
          hidden_act: "silu",
        },
        0,
        { device, dtype: "bfloat16" },
      ),
  ],
];

/** Generation and an update of random weights in bfloat16, beside what reading the weights alone would take. */
export async function measureSpeed(device: Device): Promise<Row[]> {
  // On the CPU only whether it runs.
  const isSmall = device === "cpu";
  const rowCount = isSmall ? 2 : 64;
  const bandwidth = await copyRate(device);
  const rows = [figure("copy of 1 GiB, read and written", `${(bandwidth / 1e9).toFixed(0)} GB/s`)];
  const { tokenizer, model: small } = await loadCausalLM(goldenFolder);
  small.dispose();
  for (const [name, create] of isSmall ? speedModels.slice(0, 1) : speedModels) {
    const model = create(device);
    const { vocabSize } = model.config;
    const ids = (row: number, length: number) =>
      Array.from({ length }, (_, at) => (row * 7919 + at * 104729) % vocabSize);
    const prompts = Array.from({ length: rowCount }, (_, row) => ids(row, CONTEXT));
    const keys = prompts.map((_, node) => ({ seed: 0, stream: "tester", episode: 0, node }));
    const generation = await time(3, () => {
      using session = GenerationSession.open(model, tokenizer, prompts, { reserve: NEW, endIds: [] });
      session.generate({ maxNewTokens: NEW, topK: 50, topP: 0.9 }, keys);
    });
    const parameters = [...model.namedParameters().values()];
    const bytes = parameters.reduce((sum, each) => sum + each.numel() * 2, 0);
    // Each new token reads every weight once, for all rows.
    const bound = (NEW * bytes) / bandwidth;
    rows.push(
      figure(
        `${name}, bfloat16: ${NEW} new tokens for ${rowCount} rows`,
        `${generation.median.toFixed(3)} s, ${Math.round((rowCount * NEW) / generation.median)} tokens/s; weights read ${NEW} times: ${bound.toFixed(3)} s`,
      ),
    );
    for (const parameter of parameters) parameter.requiresGrad_();
    const optimizer = new AdamW(parameters, { learningRate: 1e-5 });
    const scored = Array.from({ length: 16 }, (_, row) => ({
      context: ids(row, 64),
      continuation: ids(row + 1, 64),
    }));
    const update = await time(3, () => {
      scope(() => tokenLogprobs(model, scored).sum().neg().backward());
      optimizer.step();
      optimizer.zeroGrad();
      synchronize(device);
    });
    rows.push(
      figure(
        `${name}, bfloat16: an update on 16 rows of 128 tokens`,
        `${update.median.toFixed(3)} s, ${Math.round((16 * 128) / update.median)} tokens/s`,
      ),
    );
    optimizer.dispose();
    model.dispose();
  }
  return rows;
}

async function copyRate(device: Device): Promise<number> {
  const [from, to] = [0, 1].map(() => randn([2 ** 28], { device }));
  const { median } = await time(5, () => {
    noGrad(() => scope(() => void to!.copy_(from!)));
    synchronize(device);
  });
  from!.dispose();
  to!.dispose();
  return (2 * 2 ** 30) / median;
}
