/**
 * Cost of rollouts by size: tokens generated per second, everything included, for numbers of episodes, widths and
 * depths, with prompts of all lengths and with short ones.
 *
 *     npm run bench:rollouts -- --model DIR --prompts FILE.json [--dtype bfloat16] [--new-tokens 32] [--seed 0]
 *         [--sizes 8x2x1,32x2x1,128x2x1,64x2x3] [--short 60] [--output FILE.md]
 *
 * A size is episodes x width x depth. Short prompts have at most `--short` characters. Sizes of the same width and
 * depth grow the same episodes, as many as the largest has, in batches of their own size. The better of two runs of
 * each size counts.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { liveTensors } from "@astra-rl/torch";
import {
  ASTSampler,
  HFASTSystem,
  Scorer,
  toolboxReward,
  type InferenceDType,
  type ScoreOutcome,
} from "astra-rl";
import { loadCausalLM } from "@astra-rl/lm";
import { rolloutBound, sizesOf } from "./bounds.js";
import { busy, measureRoofline } from "./measure.js";

const { values } = parseArgs({
  options: {
    model: { type: "string" },
    prompts: { type: "string" },
    dtype: { type: "string", default: "bfloat16" },
    "new-tokens": { type: "string", default: "32" },
    seed: { type: "string", default: "0" },
    sizes: { type: "string", default: "8x2x1,32x2x1,128x2x1,256x2x1,64x2x3,2x2x8" },
    short: { type: "string", default: "60" },
    output: { type: "string" },
  },
});
if (values.model === undefined || values.prompts === undefined) {
  console.error(
    "usage: rollouts.ts --model DIR --prompts FILE.json [--sizes 8x2x1,…] [--dtype NAME] [--short N]",
  );
  process.exit(2);
}

/** Negligible cost, so that only the models are timed. */
class NoScorer extends Scorer {
  override readonly name = "nothing";

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return Promise.resolve(texts.map(() => ({ score: 0 })));
  }
}

interface Size {
  episodes: number;
  width: number;
  depth: number;
}

const sizes = values.sizes.split(",").map((each): Size => {
  const [episodes, width, depth] = each.split("x").map(Number) as [number, number, number];
  return { episodes, width, depth };
});
const newTokens = Number(values["new-tokens"]);
const seed = Number(values.seed);
const { load } = busy();
const roofline = await measureRoofline();
const scorer = new NoScorer();
const sampling = { maxNewTokens: newTokens, temperature: 1, topK: 50, topP: 0.9 };
const before = liveTensors();
const { model, tokenizer } = await loadCausalLM(values.model, {
  dtype: values.dtype as InferenceDType & "bfloat16",
});
const weights = sizesOf(model);
const dtype = model.computeDtype === "bfloat16" ? "bfloat16" : "float32";
const texts = JSON.parse(readFileSync(values.prompts, "utf8")) as string[];
const lengthOf = new Map(texts.map((text) => [text, tokenizer.encode(text).length]));
model.dispose();
const system = await HFASTSystem.load({
  tester: values.model,
  target: values.model,
  scorer,
  inferenceDtype: values.dtype as InferenceDType,
  generation: { tester: sampling, target: sampling },
  reward: toolboxReward(scorer),
});

/** Tokens generated per second, and their share of the bound. */
async function measure(
  prompts: readonly string[],
  { episodes, width, depth }: Size,
): Promise<[number, number]> {
  const sampler = new ASTSampler(system, prompts, { width, depth, seed });
  const same = sizes.filter((each) => each.width === width && each.depth === depth);
  const all = Math.max(...same.map((each) => each.episodes));
  const rates: [number, number][] = [];
  for (let run = 0; run < 2; run += 1) {
    const generated = () => {
      const { tester, target } = system.counters();
      return tester!.generated + target!.generated;
    };
    const before = generated();
    let [seconds, bound] = [0, 0];
    for (let first = 0; first < all; first += episodes) {
      const count = Math.min(episodes, all - first);
      const starts = Array.from({ length: count }, (_, at) => ({ seed, episode: first + at }));
      const started = performance.now();
      const graphs = await sampler.rolloutMany(starts);
      seconds += (performance.now() - started) / 1000;
      const openers = graphs.map(
        ({ context }) => lengthOf.get(`${context}`) ?? tokenizer.encode(`${context}`).length,
      );
      bound += rolloutBound(openers, { width, depth, newTokens }, weights, dtype, roofline);
    }
    rates.push([(generated() - before) / seconds, bound / seconds]);
  }
  return rates.sort(([a], [b]) => b - a)[0]!;
}

const lines = [
  "| episodes | width | depth | openers of all lengths, tokens/s | of its bound | short openers, tokens/s | of its bound |",
  "| --- | --- | --- | --- | --- | --- | --- |",
];
const short = texts.filter((text) => text.length <= Number(values.short));
for (const size of sizes) {
  const cells: string[] = [];
  for (const prompts of [texts, short]) {
    const [rate, share] = await measure(prompts, size);
    cells.push(rate.toFixed(0), `${(100 * share).toFixed(0)} %`);
  }
  const { episodes, width, depth } = size;
  lines.push(`| ${[episodes, width, depth, ...cells].join(" | ")} |`);
  console.error(lines.at(-1));
}
system.dispose();
if (liveTensors() !== before) throw new Error(`internal: ${liveTensors() - before} tensors were left`);
lines.push("", `Load average at the start ${load.toFixed(2)}.`);
console.log(lines.join("\n"));
if (values.output !== undefined) writeFileSync(values.output, `${lines.join("\n")}\n`);
