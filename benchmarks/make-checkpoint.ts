/**
 * A GPT-2-shaped checkpoint of 124 million parameters for benchmarks and for testing real sizes without a download:
 * random weights from a seed, then fitted for a few steps to the prompts so that it emits plausible tokens.
 *
 *     npx tsx benchmarks/make-checkpoint.ts --prompts FILE.json --output DIR [--steps 120] [--seed 0]
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { AdamW, clipGradNorm_, liveTensors, noGrad, scope } from "@astra-rl/torch";
import { initializeGPT2, saveCausalLM, Tokenizer, tokenLogprobs } from "@astra-rl/lm";
import { SeededStream, trainTokenizer } from "@astra-rl/world";

/** GPT-2's own vocabulary size. The tokenizer has fewer tokens; the other ids are never used. */
const VOCABULARY = 50257;
const LEARNED_TOKENS = 4096;
const ROW_TOKENS = 96;
const ROWS = 6;

export async function makeCheckpoint(options: {
  prompts: readonly string[];
  output: string;
  steps: number;
  seed: number;
  log: (line: string) => void;
}): Promise<void> {
  const { prompts, output, steps, seed, log } = options;
  log("learning a tokenizer");
  const { tokenizer: definition } = trainTokenizer(prompts, LEARNED_TOKENS);
  const encode = (value: object) => new TextEncoder().encode(JSON.stringify(value));
  const tokenizer = Tokenizer.fromFiles(
    new Map([
      ["tokenizer.json", encode(definition)],
      [
        "tokenizer_config.json",
        encode({
          tokenizer_class: "PreTrainedTokenizerFast",
          bos_token: "<|endoftext|>",
          eos_token: "<|endoftext|>",
        }),
      ],
    ]),
  );
  const sizes = {
    vocabSize: VOCABULARY,
    contextLength: 1024,
    hiddenSize: 768,
    layers: 12,
    heads: 12,
    bosId: tokenizer.eosId ?? 0,
    eosId: tokenizer.eosId ?? 0,
  };
  const model = initializeGPT2(sizes, seed, { computeDtype: "bfloat16" });
  const parameters = [...model.namedParameters().values()];
  for (const parameter of parameters) parameter.requiresGrad_();
  const rows = prompts
    .map((prompt) => [tokenizer.eosId ?? 0, ...tokenizer.encode(prompt)].slice(0, ROW_TOKENS))
    .filter((row) => row.length > 8);
  const optimizer = new AdamW(parameters, { learningRate: 6e-4, weightDecay: 0.1 });
  const order = new SeededStream(seed, "fit");
  const before = liveTensors();
  for (let step = 1; step <= steps; step++) {
    const batch = Array.from({ length: ROWS }, () => rows[order.integer(rows.length)]!);
    const tokens = batch.reduce((sum, row) => sum + row.length - 1, 0);
    const loss = scope(() => {
      const scored = batch.map(([first, ...rest]) => ({ context: [first!], continuation: rest }));
      const value = tokenLogprobs(model, scored).sum().div(-tokens);
      value.backward();
      return value.item();
    });
    scope(() => noGrad(() => clipGradNorm_(parameters, 1)));
    optimizer.learningRate = 6e-4 * Math.min(1, step / 10);
    optimizer.step();
    optimizer.zeroGrad();
    if (step % 20 === 0 || step === 1) log(`step ${step} of ${steps}: ${loss.toFixed(3)} nats a token`);
  }
  if (liveTensors() > before + 2 * parameters.length) throw new Error("internal: tensors leak while fitting");
  await saveCausalLM(output, model, tokenizer);
  model.dispose();
  log(`saved ${output}`);
}

if (process.argv[1]?.endsWith("make-checkpoint.ts")) {
  const { values } = parseArgs({
    options: {
      prompts: { type: "string" },
      output: { type: "string" },
      steps: { type: "string", default: "120" },
      seed: { type: "string", default: "0" },
    },
  });
  if (values.prompts === undefined || values.output === undefined) {
    console.error("usage: make-checkpoint.ts --prompts FILE.json --output DIR [--steps N] [--seed S]");
    process.exit(2);
  }
  await makeCheckpoint({
    prompts: JSON.parse(readFileSync(values.prompts, "utf8")) as string[],
    output: values.output,
    steps: Number(values.steps),
    seed: Number(values.seed),
    log: (line) => console.error(line),
  });
}
