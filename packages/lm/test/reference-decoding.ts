import { noGrad, scope, tensor } from "@astra-rl/torch";
import { keyedUniform, type DrawKey } from "@astra-rl/base";
import type { CausalLM, Sampling, TokenDecoder } from "../src/index.js";
import { resolveSampling } from "../src/generation/sampling.js";

/** The reference for sessions: one row, no cache, no batch, the whole text processed again for each token. */
export function referenceLogits(model: CausalLM, ids: readonly number[]): number[][] {
  return noGrad(() =>
    scope(() => {
      const row = tensor(Int32Array.from(ids), { dtype: "int64", shape: [1, ids.length] });
      const positions = tensor(
        Int32Array.from(ids, (_, at) => at),
        { dtype: "int64", shape: [1, ids.length] },
      );
      const options = { positions, mask: null };
      const logits = model.logits(model.forward(row, options)).to("float32");
      return (logits.toArray() as number[][][])[0]!;
    }),
  );
}

export function logSoftmax(logits: readonly number[]): number[] {
  const most = Math.max(...logits);
  const total = Math.log(logits.reduce((sum, value) => sum + Math.exp(value - most), 0)) + most;
  return logits.map((value) => value - total);
}

/** log P of each continuation token, read off a single pass over the whole text. */
export function referenceLogprobs(
  model: CausalLM,
  context: readonly number[],
  tokens: readonly number[],
): number[] {
  if (tokens.length === 0) return [];
  const logits = referenceLogits(model, [...context, ...tokens]);
  return tokens.map((token, at) => logSoftmax(logits[context.length + at - 1]!)[token]!);
}

/** The distribution after all filters, in plain JavaScript numbers. */
export function referenceFilter(
  logits: readonly number[],
  seen: ReadonlySet<number>,
  sampling: Sampling,
  held: readonly number[],
): number[] {
  const { temperature, topK, topP, repetitionPenalty } = resolveSampling(sampling);
  const shaped = logits.map((value, id) => {
    if (held.includes(id)) return -Infinity;
    const penalized = value < 0 ? value * repetitionPenalty : value / repetitionPenalty;
    return (seen.has(id) ? penalized : value) / temperature;
  });
  const order = shaped.map((_, id) => id).sort((a, b) => shaped[b]! - shaped[a]! || a - b);
  const kept = new Set(topK > 0 ? order.slice(0, topK) : order);
  let probabilities = logSoftmax(shaped.map((value, id) => (kept.has(id) ? value : -Infinity))).map(Math.exp);
  if (topP < 1) {
    let before = 0;
    for (const id of order) {
      if (before >= topP) kept.delete(id);
      before += probabilities[id]!;
    }
    probabilities = probabilities.map((value, id) => (kept.has(id) ? value : 0));
  }
  const total = probabilities.reduce((sum, value) => sum + value, 0);
  return probabilities.map((value) => value / total);
}

/** Samples token by token; candidates are ordered as the engine orders them. */
export function referenceGenerate(
  model: CausalLM,
  tokenizer: TokenDecoder,
  prompt: readonly number[],
  sampling: Sampling,
  key: DrawKey | null,
): { ids: number[]; logprobs: number[]; behaviour: number[]; row: number[] } {
  const { maxNewTokens, minNewTokens, greedy, topK, topP, temperature } = resolveSampling(sampling);
  const { contextLength, eosIds } = model.config;
  const row = prompt.slice(Math.max(0, prompt.length - (contextLength - maxNewTokens)));
  const ids: number[] = [];
  const logprobs: number[] = [];
  const behaviour: number[] = [];
  for (let step = 0; step < maxNewTokens; step += 1) {
    const logits = referenceLogits(model, row).at(-1)!;
    const held = step < minNewTokens ? eosIds : [];
    const probabilities = referenceFilter(
      logits,
      new Set(row),
      { ...sampling, ...(greedy ? { topK: 1 } : {}) },
      held,
    );
    let id: number;
    if (greedy || key === null) {
      id = probabilities.indexOf(Math.max(...probabilities));
    } else {
      const ranked = topK > 0 || topP < 1;
      const order = probabilities.map((_, token) => token);
      const shaped = logits.map((value) => value / temperature);
      if (ranked)
        order.sort((a, b) => probabilities[b]! - probabilities[a]! || shaped[b]! - shaped[a]! || a - b);
      const uniform = keyedUniform(key, step);
      let sum = 0;
      id = order.find((token) => (sum += probabilities[token]!) > uniform) ?? order[0]!;
    }
    ids.push(id);
    logprobs.push(logSoftmax(logits)[id]!);
    behaviour.push(greedy ? 0 : Math.log(probabilities[id]!));
    const silent = tokenizer.decode([id], { skipSpecialTokens: true }) === "";
    if (eosIds.includes(id)) {
      if (!silent) row.push(id);
      break;
    }
    row.push(id);
  }
  return { ids, logprobs, behaviour, row };
}
