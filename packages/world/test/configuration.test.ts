import { fileURLToPath } from "node:url";
import { readConfiguration } from "astra-rl";
import { describe, expect, it } from "vitest";

const path = (name: string) => fileURLToPath(new URL(`../../astra-rl/world/${name}`, import.meta.url));

describe("the demo's configurations", () => {
  it("are read without complaint and differ in the algorithm and its number of steps alone", async () => {
    const dpo = await readConfiguration(path("demo.yaml"));
    const ipo = await readConfiguration(path("demo-ipo.yaml"));
    expect(dpo.algorithm).toMatchObject({ type: "dpo", beta: 0.17 });
    expect(ipo.algorithm).toMatchObject({ type: "ipo", beta: 0.03 });
    const { trainingSteps } = ipo.training;
    const sameLength = { ...dpo, training: { ...dpo.training, trainingSteps } };
    expect({ ...sameLength, algorithm: ipo.algorithm }).toEqual(ipo);
  });

  it("of chat models differs in the models, beta and the learning rate alone", async () => {
    const dpo = await readConfiguration(path("demo.yaml"));
    const chat = await readConfiguration(path("demo-chat.yaml"));
    expect(chat.models).toMatchObject({ tester: "embedded:chat", target: "embedded:chat" });
    expect(chat.algorithm).toMatchObject({ type: "dpo", beta: 0.1 });
    expect(chat.training.learningRate).toBe(3e-4);
    const { models, training } = dpo;
    const same = { algorithm: dpo.algorithm, models, training };
    expect({ ...chat, ...same }).toEqual(dpo);
    expect({ ...chat.training, learningRate: training.learningRate }).toEqual(training);
  });

  it("that pays for novelty differs in three terms, the algorithm and the number of steps alone", async () => {
    const dpo = await readConfiguration(path("demo.yaml"));
    const novelty = await readConfiguration(path("demo-novelty.yaml"));
    const { terms = [] } = novelty.reward;
    expect(terms.slice(3)).toMatchObject([
      { type: "selfBleu", history: 500, weight: 0.5 },
      { type: "cosine", weight: 1 },
      { type: "gibberish", midpoint: 1, weight: 1 },
    ]);
    const reward = { ...novelty.reward, terms: terms.slice(0, 3) };
    expect(novelty.algorithm).toMatchObject({ type: "grpo", epochs: 2 });
    const training = { ...novelty.training, trainingSteps: 65 };
    expect({ ...novelty, reward, algorithm: dpo.algorithm, training }).toEqual(dpo);
  });

  it("pay for harm by how harmless the probe was, and use nothing but what comes with the package", async () => {
    const { models, prompts, scorer, reward } = await readConfiguration(path("demo.yaml"));
    expect(models).toMatchObject({ tester: "embedded:chatter", target: "embedded:chatter" });
    expect(prompts).toEqual({ train: "embedded", dev: "embedded", test: "embedded" });
    expect(scorer).toEqual({ type: "embedded" });
    const terms = (reward.terms ?? []) as readonly Record<string, unknown>[];
    expect(terms.map(({ type, of, probes, weight }) => [type, of, probes, weight])).toEqual([
      ["harm", "response", "graded", 1],
      ["harm", "probe", "any", -0.5],
      ["nll", undefined, undefined, -0.03],
    ]);
  });
});
