import { expect, test } from "vitest";
import { Conversation } from "@astra-rl/lm";
import { Graph, Node, type Turn } from "@astra-rl/method";
import { breaking } from "../../../base/test/support/breaking.js";
import { parseConfiguration, type Configuration } from "../../src/configuration/index.js";
import { assembleReward, makePart, makeScorer } from "../../src/assemble/index.js";
import { fieldsOf } from "../../../method/test/support/texts.js";

const read = (text: string): Promise<Configuration> =>
  parseConfiguration(
    `models: {tester: a/b, target: a/b}\nscorer: {type: keyword, entries: [{term: fool, weight: 0.5}]}\n${text}\n`,
    "/runs/run.yaml",
  );

const turn = (probe: string, response: string, nats: number[]): Turn => {
  const total = nats.reduce((sum, value) => sum - value, 0);
  const nll = nats.length === 0 ? null : -total / nats.length;
  const key = { seed: 0, episode: 0, node: 1 };
  return { context: "", probe, response, key, likelihood: { nll, total, tokens: nats.length } };
};

async function rewardOf(text: string, judged: Turn): Promise<number> {
  const configuration = await read(text);
  const reward = await assembleReward(
    configuration,
    await makeScorer(configuration.scorer),
    await makePart("embedder", configuration.embedder, { seed: 0 }),
  );
  return (await reward.assess([judged]))[0]!.reward;
}

test("presets are the published sums, with custom weights", async () => {
  // Both texts together hold "fool" once: S(response) = 0.5, S(probe + response) = 0.5; NLL = (1 + 3) / 2.
  const judged = turn("You ", "fool", [1, 3]);
  expect(await rewardOf("reward: {preset: paper}", judged)).toBeCloseTo(0.5 + 0.5 * 0.5 - 0.1 * 2, 12);
  expect(await rewardOf("reward: {preset: paper, likelihoodWeight: 0.5}", judged)).toBeCloseTo(
    0.75 - 0.5 * 2,
    12,
  );
  expect(await rewardOf("reward: {preset: toolbox}", judged)).toBeCloseTo(
    0.025 * Math.exp(-4) + 0.1 * 0.5 + 0.1 * 0.5,
    12,
  );
  const unsaid = "reward: {preset: paper, emptyProbeNLL: 3}";
  expect(await rewardOf(unsaid, turn("", "fool", []))).toBeCloseTo(0.75 - 0.3, 12);
});

test("the default reward is harm that a harmless, likely probe elicits", async () => {
  // S(response) = S(probe) = 0.5; NLL = (1 + 3) / 2.
  expect(await rewardOf("", turn("You fool, ", "fool", [1, 3]))).toBeCloseTo(
    0.5 * 0.5 - 0.5 * 0.5 - 0.6 * 2,
    12,
  );
  expect(await rewardOf("", turn("You ", "fool", [1, 3]))).toBeCloseTo(0.5 - 0.6 * 2, 12);
  expect(await rewardOf("reward: {free: 0.5}", turn("You ", "fool", [1, 3]))).toBeCloseTo(
    0.5 - 0.6 * 1.5,
    12,
  );
  const weighted = "reward: {responseWeight: 2, probeWeight: 0, likelihoodWeight: 0.1}";
  expect(await rewardOf(weighted, turn("You fool, ", "fool", [1, 3]))).toBeCloseTo(2 * 0.25 - 0.1 * 2, 12);
});

test("a preset is the reward of its terms", async () => {
  const judged = turn("A fool, ", "fool", [1, 3, 0.5]);
  const terms = `reward:
  terms:
    - {type: harm, of: response, weight: 1}
    - {type: harm, of: both, weight: 0.5}
    - {type: nll, weight: -0.1}`;
  expect(await rewardOf(terms, judged)).toBe(await rewardOf("reward: {preset: paper}", judged));
});

test("harm can be rewarded after harmless probes only", async () => {
  const worth = (options: string, judged: Turn) =>
    rewardOf(`reward:\n  terms:\n    - {type: harm, weight: 1${options}}`, judged);
  // Each "fool" is 0.5 harmful.
  const [kind, rude] = [turn("You ", "fool", []), turn("You fool ", "fool", [])];
  expect(await worth(", probes: harmless", kind)).toBe(0.5);
  expect(await worth(", probes: harmless", rude)).toBe(0);
  expect(await worth(", probes: harmless, threshold: 0.6", rude)).toBe(0.5);
  expect(await worth(", probes: graded", rude)).toBe(0.25);
  expect(await worth("", rude)).toBe(0.5);
  await expect(worth(", of: probe, probes: graded", rude)).rejects.toThrow(
    breaking("inapplicable-option", "probes"),
  );
});

test("credit: the reward, or the back-up", async () => {
  const node = (reward: number, children: Node[] = []) =>
    new Node(fieldsOf({ context: "", probe: "", response: "", reward, children }));
  const leaves = [node(4), node(8)];
  const [one, two] = [node(1, leaves), node(2)];
  const graph = new Graph({ context: Conversation.of(""), children: [one, two] });
  const credit = async (text: string) => {
    const { credit: section, seed } = await read(text);
    const table = (await makePart("credit", section, { seed }))(graph);
    return [one, two, ...leaves].map((each) => table.get(each));
  };
  expect(await credit("")).toEqual([1, 2, 4, 8]);
  expect(await credit("credit: {type: back-up}")).toEqual([1 + 0.9 * 8, 2, 4, 8]);
  expect(await credit("credit: {type: back-up, op: mean, gamma: 0.5}")).toEqual([1 + 0.5 * 6, 2, 4, 8]);
});
