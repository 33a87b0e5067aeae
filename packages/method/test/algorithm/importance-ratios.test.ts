import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { generate, loadCausalLM, tokenLogprobs, type CausalLM, type Tokenizer } from "@astra-rl/lm";
import { noGrad } from "@astra-rl/torch";
import { KeywordScorer } from "@astra-rl/scorers";
import { GRPO } from "../../src/algorithm/policy-gradient/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTSystem } from "../../src/system/index.js";
import { rewardCredit } from "../../src/tree/index.js";

const repository = new URL("../../../../", import.meta.url);
const model = fileURLToPath(new URL("packages/assembly/world/chatter", repository));
const PROMPTS = JSON.parse(
  readFileSync(new URL("packages/assembly/world/prompts/test.json", repository), "utf8"),
) as string[];

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
const percent = (values: readonly number[], holds: (value: number) => boolean) =>
  `${((100 * values.filter(holds).length) / values.length).toFixed(0)} %`;

/** How the embedded model's messages are sampled, as the table of docs/importance-ratios.md names it. */
const SAMPLING = {
  "top-p 0.8": { topP: 0.8 },
  "top-k 5": { topK: 5 },
  "temperature 0.7": { temperature: 0.7 },
  none: {},
};

describe("importance ratios of the embedded model before the first update", () => {
  let loaded: { model: CausalLM; tokenizer: Tokenizer };
  beforeAll(async () => {
    loaded = await loadCausalLM(model);
  });
  afterAll(() => loaded.model.dispose());

  /** Ratios of each sampled token: to what is recorded, and to the distribution that it was drawn from. */
  function ratiosOf(sampling: (typeof SAMPLING)[keyof typeof SAMPLING]) {
    const contexts = PROMPTS.slice(0, 96).map((text) => loaded.tokenizer.encode(text));
    const keys = contexts.map((_, node) => ({ seed: 1, stream: "tester", episode: 0, node }));
    const options = { maxNewTokens: 24, recordBehaviour: true, ...sampling };
    const said = generate(loaded.model, loaded.tokenizer, contexts, options, keys);
    const rows = contexts.map((context, row) => ({ context, continuation: said.ids[row]! }));
    const table = noGrad(() => tokenLogprobs(loaded.model, rows));
    const [columns, values] = [table.shape[1]!, Array.from(table.toTypedArray() as Float32Array)];
    table.dispose();
    const recomputed = said.ids.map((ids, row) => values.slice(row * columns, row * columns + ids.length));
    const ratios = (old: readonly (readonly number[])[]) =>
      recomputed.flatMap((row, at) => row.map((logprob, token) => Math.exp(logprob - old[at]![token]!)));
    return { recorded: ratios(said.logprobs), renormalized: ratios(said.behaviourLogprobs) };
  }

  it("are 1 with recorded log-probabilities, and the kept mass with renormalized ones, as the page states", () => {
    const rows = Object.entries(SAMPLING).map(([name, sampling]) => {
      const { recorded, renormalized } = ratiosOf(sampling);
      expect(recorded.length).toBeGreaterThan(800);
      expect(Math.max(...recorded.map((ratio) => Math.abs(ratio - 1)))).toBeLessThan(1e-4);
      return [
        name,
        mean(recorded).toFixed(4),
        mean(renormalized).toFixed(2),
        percent(renormalized, (ratio) => Math.abs(ratio - 1) > 0.1),
        percent(renormalized, (ratio) => ratio < 0.8 || ratio > 1.2),
      ];
    });
    const page = readFileSync(new URL("docs/importance-ratios.md", repository), "utf8");
    const stated = [...page.matchAll(/^\|(.+)\|$/gmu)]
      .map(([, row]) => row!.split("|").map((cell) => cell.trim()))
      .filter(([name = ""]) => name in SAMPLING);
    expect(stated).toEqual(rows);
    expect(page).toContain("by at most 10⁻⁴");
  });

  it.each(["recorded", "recomputed"] as const)(
    "clip nothing in the first step of GRPO with top-p 0.8 and oldLogprobs: %s",
    async (oldLogprobs) => {
      const generation = { tester: { maxNewTokens: 24, topP: 0.8 }, target: { maxNewTokens: 8 } };
      const scorer = new KeywordScorer([{ term: "garden" }]);
      const system = await HFASTSystem.load({ tester: model, target: model, scorer, generation });
      try {
        const sampler = new ASTSampler(system, PROMPTS.slice(0, 4), { width: 4, depth: 1 });
        const graphs = await sampler.rolloutMany([0, 1, 2, 3].map((episode) => ({ seed: 1, episode })));
        const grpo = new GRPO(system, { oldLogprobs, klLossCoefficient: 0 });
        const branches = await grpo.prepare(
          graphs.flatMap((graph) => grpo.flatten(graph, rewardCredit(graph))),
        );
        const { loss, logs } = await grpo.step(grpo.collate(branches));
        loss.dispose();
        expect(logs["policy/clip_fraction"]).toBe(0);
        expect(logs["policy/kl_old"]).toBeLessThan(1e-8);
      } finally {
        system.dispose();
      }
    },
  );
});
