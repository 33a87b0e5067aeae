import { expect, it } from "vitest";
import { parse } from "yaml";
import { doubt } from "@astra-rl/records";
import { summarize } from "@astra-rl/analysis";
import { testerCard, type TesterCardSource } from "../src/card/index.js";

/** Nine of 20 rollouts of one turn are successes, one of them by a harmful probe. */
const details = Array.from({ length: 20 }, (_, at) => ({
  per_turn: [
    {
      turn: 1,
      context: "Hi.",
      probe: `probe ${at}`,
      response: "No.",
      reward: 0,
      probe_harm: at === 0 ? 0.9 : 0.1,
      response_harm: at < 9 ? 0.8 : 0.1,
      probe_nll: 2,
      probe_tokens: 3,
      error: null,
    },
  ],
  overall: {
    num_turns: 1,
    num_errors: 0,
    mean_reward: 0,
    mean_probe_harm: 0.1,
    mean_response_harm: 0.4,
    first_harmful_probe_turn: at === 0 ? 1 : null,
    first_harmful_response_turn: at < 9 ? 1 : null,
    harmless_probe_success: at > 0 && at < 9,
  },
}));
const evaluation = {
  summary: summarize(details),
  measured: { scorer: { type: "judge" }, prompts: { source: "/home/me/secret/test.json" } },
} as unknown as TesterCardSource["evaluation"];

const source: TesterCardSource = {
  configuration: {
    seed: 7,
    models: {
      tester: { path: "Qwen/Qwen2.5-0.5B-Instruct@main", system: "You are <b>" },
      target: "/data/models/victim",
    },
    algorithm: { type: "dpo" },
    scorer: { type: "judge" },
    reward: {
      terms: [
        { type: "harm", of: "response", weight: 1 },
        { type: "nll", weight: -0.1 },
      ],
    },
    training: { learningRate: 0.0001 },
  },
  run: null,
  evaluation,
  isChosenBy: false,
  step: 40,
  format: "peft",
};

it("is a model card of the hub, with figures, their intervals and their judge", () => {
  const card = testerCard(source);
  const [, front, body] = card.split(/^---$/mu) as [string, string, string];
  expect(parse(front)).toMatchObject({
    library_name: "peft",
    base_model: "Qwen/Qwen2.5-0.5B-Instruct",
    "model-index": [
      { results: [{ metrics: [{ type: "attack_success_rate", value: 0.45 }, { value: 0.4 }] }] },
    ],
  });
  expect(body).toContain("judged by judge at a threshold of 0.5");
  expect(body).toContain("| attack success rate | 45.0 % (9/20) |");
  expect(body).toContain("| 95 % interval | 25.8 % to 65.8 % |");
  expect(body).toContain("| reward | 1 × harm of response + -0.1 × nll |");
  expect(body).toContain("| system prompt | You are \\<b\\> |");
  expect(body).toContain("# A tester against victim, trained");
  // Paths of this machine are private.
  expect(card).not.toMatch(/\/data|\/home/u);
  expect(body).not.toContain("flatter");
});

it("says that a checkpoint was selected by its own figures, or that there are none", () => {
  expect(testerCard({ ...source, isChosenBy: true })).toContain("the figures are optimistic");
  const none = testerCard({ ...source, evaluation: null, format: "transformers", configuration: {} });
  expect(none).toContain("It has not been evaluated");
  expect(none).toContain("library_name: transformers");
  expect(none).not.toContain("model-index");
});

it("distinguishes doubts about the measurement from inconclusive figures", () => {
  const doubts = [
    doubt("failed-turns", "most turns failed"),
    doubt("scorer-never-fires", "nothing was found"),
  ];
  const card = testerCard({
    ...source,
    evaluation: { ...evaluation!, summary: { ...evaluation!.summary, doubts } },
  });
  expect(card).toContain("**No verdict on the target**: most turns failed.");
  expect(card).toContain("Doubtful (scorer-never-fires): nothing was found.");
  expect(card).not.toContain("**No verdict on the target**: nothing was found");
});

it("names no library and no scorer for a system that has neither", () => {
  const card = testerCard({
    ...source,
    format: null,
    configuration: { system: { type: "/home/me/cart.ts#Cart" }, scorer: { type: "none" } },
    evaluation: {
      summary: evaluation!.summary,
      measured: { scorer: { type: "none" }, prompts: { source: "/x/p.txt" } },
    } as unknown as TesterCardSource["evaluation"],
  });
  expect(card).toContain("| system | cart.ts\\#Cart |");
  expect(card).toContain("20 conversations from p.txt, judged by the reward of its system.");
  expect(card).not.toMatch(
    /library_name|text-generation|model-index|base model|astra-rl serve|judged by none|harmful answers/u,
  );
});
