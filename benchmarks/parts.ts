/** Decoding, prefilling and updating at the size of GPT-2, each as a rate and as a share of the machine's bound. */
import { AdamW, liveTensors, noGrad, scope, type Tensor } from "@astra-rl/torch";
import { GenerationSession, loadCausalLM, tokenLogprobs, type CausalLM, type Tokenizer } from "@astra-rl/lm";
import { decodeBound, readBound, sizesOf, updateBound } from "./bounds.js";
import { median, time, type Roofline } from "./measure.js";

export interface Part {
  name: string;
  tokensPerSecond: number;
  /** Seconds of the bound divided by the seconds measured. */
  shareOfBound: number;
  /** Quantity counted by the bound. */
  bound: string;
}

const CONTEXT = 128;
const NEW_TOKENS = 32;

const prompt = (row: number, length: number) =>
  Array.from({ length }, (_, k) => 300 + ((row * 131 + k * 17) % 3000));
const keys = (rows: number) =>
  Array.from({ length: rows }, (_, node) => ({ seed: 0, stream: "tester", episode: 0, node }));

/** Texts to continue: number of tokens of each. */
const lengthsOf: Readonly<Record<string, (rows: number) => number[]>> = {
  "": (rows) => Array.from({ length: rows }, () => CONTEXT),
  "of 60 tokens": (rows) => Array.from({ length: rows }, () => 60),
  "of 60 tokens, one of 960": (rows) => Array.from({ length: rows }, (_, row) => (row === 5 ? 960 : 60)),
  // Quantiles of a log-normal distribution with median 60: like openers, up to the context length.
  "of all lengths": (rows) =>
    Array.from({ length: rows }, (_, row) => {
      const quantile = ((row * 37) % rows) / rows + 0.5 / rows;
      const deviation = Math.log(quantile / (1 - quantile)) / 1.702; // logistic, close to the normal quantile
      return Math.max(3, Math.min(960, Math.round(60 * Math.exp(1.1 * deviation))));
    }),
};

async function decode(
  model: CausalLM,
  tokenizer: Tokenizer,
  rows: number,
  kind: string,
  roofline: Roofline,
): Promise<Part> {
  const sampling = {
    maxNewTokens: NEW_TOKENS,
    temperature: 1,
    topK: 50,
    topP: 0.9,
  };
  const lengths = lengthsOf[kind]!(rows);
  const prompts = lengths.map((length, row) => prompt(row, length));
  const seconds: number[] = [];
  for (let run = 0; run < (rows > 64 ? 3 : 4); run++) {
    // Without end ids, every row has its maximum length.
    const session = GenerationSession.open(model, tokenizer, prompts, { reserve: NEW_TOKENS, endIds: [] });
    // Prefilling the prompts is not part of the decoding rate.
    session.prefill();
    const started = performance.now();
    session.generate(sampling, keys(rows));
    seconds.push((performance.now() - started) / 1000);
    session.dispose();
  }
  const measured = median(seconds.slice(1));
  const columns = lengths.reduce((sum, length) => sum + length, 0) / rows + NEW_TOKENS / 2;
  return {
    name: `decode, ${rows} rows ${kind}`.trim(),
    tokensPerSecond: (rows * NEW_TOKENS) / measured,
    shareOfBound: (NEW_TOKENS * decodeBound(rows, columns, sizesOf(model), "bfloat16", roofline)) / measured,
    bound: "weights and cache read once a step, or products at the measured rate, whichever takes longer",
  };
}

async function read(model: CausalLM, tokenizer: Tokenizer, rows: number, roofline: Roofline): Promise<Part> {
  const prompts = Array.from({ length: rows }, (_, row) => prompt(row, CONTEXT));
  const { median: measured } = await time(3, () => {
    const session = GenerationSession.open(model, tokenizer, prompts);
    session.prefill();
    session.dispose();
  });
  const tokens = rows * CONTEXT;
  return {
    name: `read, ${rows} rows of ${CONTEXT}`,
    tokensPerSecond: tokens / measured,
    shareOfBound: readBound(tokens, rows, sizesOf(model), "bfloat16", roofline) / measured,
    bound: "products at the measured rate",
  };
}

/** One optimizer step from a batch of four preference pairs that share their contexts, as in a tree. */
async function update(directory: string, roofline: Roofline): Promise<Part> {
  const { model } = await loadCausalLM(directory, { dtype: "float32", computeDtype: "bfloat16" });
  const parameters = [...model.namedParameters().values()];
  for (const parameter of parameters) parameter.requiresGrad_();
  const optimizer = new AdamW(parameters, { learningRate: 1e-6 });
  const copy = model.copy("bfloat16");
  const rows = Array.from({ length: 8 }, (_, row) => ({
    context: prompt(row >> 1, CONTEXT),
    continuation: prompt(100 + row, NEW_TOKENS),
  }));
  const counters = { tokensRead: 0 };
  let runs = 0;
  const { median: measured } = await time(3, () => {
    runs += 1;
    scope(() => {
      const loss: Tensor = tokenLogprobs(model, rows, { counters }).sum().neg();
      loss.backward();
    });
    optimizer.step();
    optimizer.zeroGrad();
    noGrad(() => copy.copyFrom(model));
  });
  const tokens = counters.tokensRead / runs;
  const scored = rows.length * NEW_TOKENS;
  const types = { rollouts: "bfloat16", updates: "bfloat16" } as const;
  const bound = updateBound({ read: tokens, scored, updates: 1 }, sizesOf(model), types, roofline);
  copy.dispose();
  optimizer.dispose();
  model.dispose();
  return {
    name: `update, ${tokens} tokens read, ${scored} scored`,
    tokensPerSecond: tokens / measured,
    shareOfBound: bound / measured,
    bound: "products at the measured rate, then optimizer and copy at the rate of copying",
  };
}

export async function measureParts(
  directory: string,
  roofline: Roofline,
  log: (line: string) => void,
): Promise<Part[]> {
  const before = liveTensors();
  const parts: Part[] = [];
  const add = (part: Part) => {
    parts.push(part);
    log(
      `${part.name}: ${part.tokensPerSecond.toFixed(0)} tokens/s, ${(100 * part.shareOfBound).toFixed(0)} % of its bound`,
    );
  };
  const { model, tokenizer } = await loadCausalLM(directory, { dtype: "bfloat16" });
  for (const rows of [2, 4, 8, 16, 32, 64, 128, 256, 512])
    add(await decode(model, tokenizer, rows, "", roofline));
  for (const kind of Object.keys(lengthsOf).slice(1))
    add(await decode(model, tokenizer, 256, kind, roofline));
  add(await read(model, tokenizer, 16, roofline));
  model.dispose();
  add(await update(directory, roofline));
  if (liveTensors() !== before) throw new Error(`internal: ${liveTensors() - before} tensors were left`);
  return parts;
}
