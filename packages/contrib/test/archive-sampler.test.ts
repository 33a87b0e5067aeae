import { describe, expect, it } from "vitest";
import { Conversation } from "@astra-rl/lm";
import { Graph, Node } from "@astra-rl/method";
import { KeywordScorer } from "@astra-rl/scorers";
import { breaking } from "../../base/test/support/breaking.js";
import { Archive } from "../src/samplers/archive.js";
import { ArchiveSampler, type ArchiveSamplerOptions } from "../src/samplers/index.js";
import { samplerContract } from "../../scorers/test/contract/sampler.contract.js";
import { fieldsOf } from "../../method/test/support/texts.js";
import { ToySystem } from "../../method/test/support/toy-system.js";

const PROMPTS = ["One. ", "Two. ", "Three. "];
const toy = () => new ToySystem(new KeywordScorer(["bad", "so"].map((term) => ({ term, weight: 0.5 }))));
const sampler = (options: ArchiveSamplerOptions = {}) => new ArchiveSampler(toy(), PROMPTS, options);

const turn = (context: string, reward: number, children: Node[] = []) =>
  new Node(fieldsOf({ context, probe: "p", response: "r", reward, children }));
const graph = (context: string, children: Node[]) =>
  new Graph({ context: Conversation.of(context), children });

samplerContract("ArchiveSampler", { create: async (options) => sampler(options), prompts: PROMPTS });

describe("Archive", () => {
  const archive = (options: Partial<ConstructorParameters<typeof Archive>[0]> = {}) =>
    new Archive({ capacity: 3, minReward: -Infinity, longest: 3, ...options });

  it("keeps the state of each graph's best turn, the best first", () => {
    const kept = archive();
    kept.add([
      graph("a", [turn("a", 1, [turn("ab", 5)]), turn("a", 3)]),
      graph("c", [turn("c", 7)]),
      // The first among equals; a turn that could not be judged is never the best.
      graph("d", [turn("d", NaN, [turn("dx", 2)]), turn("d", 2)]),
      graph("empty", []),
    ]);
    expect(kept.openings).toEqual([
      { context: "c", reward: 7, turns: 0 },
      { context: "ab", reward: 5, turns: 1 },
      { context: "d", reward: 2, turns: 0 },
    ]);
  });

  it("drops the worst, the newest among equals, and keeps each state once with its best reward", () => {
    const kept = archive();
    kept.add([graph("a", [turn("a", 1)]), graph("b", [turn("b", 2)]), graph("c", [turn("c", 1)])]);
    kept.add([graph("d", [turn("d", 1)]), graph("a", [turn("a", 4)]), graph("a", [turn("a", 3)])]);
    expect(kept.openings.map(({ context, reward }) => [context, reward])).toEqual([
      ["a", 4],
      ["b", 2],
      ["c", 1],
    ]);
  });

  it("counts turns from the prompt through replays, and accepts none that is too long", () => {
    const kept = archive();
    kept.add([graph("a", [turn("a", 1, [turn("ab", 5)])])]);
    // Replayed from "ab", which lies one turn behind its prompt: "abc" lies two behind it, "abcd" three.
    kept.add([graph("ab", [turn("ab", 0, [turn("abc", 6)])])]);
    kept.add([graph("abc", [turn("abc", 0, [turn("abcd", 9)])])]);
    expect(kept.openings).toEqual([
      { context: "abc", reward: 6, turns: 2 },
      { context: "ab", reward: 5, turns: 1 },
    ]);
  });

  it("accepts nothing below its minimum reward", () => {
    const kept = archive({ minReward: 2 });
    kept.add([graph("a", [turn("a", 1.9)]), graph("b", [turn("b", 2)])]);
    expect(kept.openings.map(({ context }) => context)).toEqual(["b"]);
  });

  it("refuses states that are not its own", () => {
    for (const state of [null, {}, [{ context: "a" }], [{ reward: 1, turns: 0 }]]) {
      expect(() => archive().setState(state)).toThrow(breaking("invalid-state"));
    }
  });
});

describe("ArchiveSampler", () => {
  const found = [
    graph("Good opening. ", [turn("Good opening. ", 1)]),
    graph("Other. ", [turn("Other. ", 2)]),
  ];
  const starts = Array.from({ length: 400 }, (_, episode) => ({ seed: 2, episode }));

  it("replays the configured share, each opening about equally often, and never in evaluations", async () => {
    const own = sampler({ depth: 1, width: 1, replay: 0.25 });
    const before = await own.rolloutMany(starts);
    await own.observe(found);
    const after = await own.rolloutMany(starts);
    const replayed = after.filter(({ context }) => !PROMPTS.includes(`${context}`));
    // 100 expected, standard deviation 8.7; of these 50 each.
    expect(Math.abs(replayed.length - 100)).toBeLessThan(44);
    const good = replayed.filter(({ context }) => `${context}` === "Good opening. ").length;
    expect(Math.abs(good - replayed.length / 2)).toBeLessThan(26);
    // Every other episode is what it was: the draws of the archive are its own.
    const others = after.flatMap((one, at) => (PROMPTS.includes(`${one.context}`) ? [at] : []));
    expect(JSON.stringify(others.map((at) => after[at]))).toBe(
      JSON.stringify(others.map((at) => before[at])),
    );
    const evaluated = await own.evalRolloutMany(starts.slice(0, 50));
    for (const { context } of evaluated) expect(PROMPTS).toContain(`${context}`);
  });

  it.each([
    [0, []],
    [1, ["Good opening. ", "Other. "]],
  ])("replays nothing at 0 and everything at 1: %f", async (replay, contexts) => {
    const own = sampler({ depth: 1, replay });
    await own.observe(found);
    const seen = new Set((await own.rolloutMany(starts.slice(0, 40))).map(({ context }) => `${context}`));
    expect([...seen].sort()).toEqual(replay === 0 ? [...PROMPTS].sort() : contexts);
  });

  it("resumes from its state exactly, batched as one by one", async () => {
    const options = { width: 2, depth: 3, replay: 0.5, capacity: 4 };
    const episodes = (experience: number) =>
      Array.from({ length: 3 }, (_, i) => ({ seed: 7, episode: 3 * experience + i }));
    const whole = sampler(options);
    let resumed = sampler(options);
    let replays = 0;
    for (let experience = 0; experience < 8; experience++) {
      const together = await whole.rolloutMany(episodes(experience));
      const alone = [];
      for (const episode of episodes(experience)) alone.push(await resumed.rollout(episode));
      expect(JSON.stringify(alone)).toBe(JSON.stringify(together));
      replays += together.filter(({ context }) => !PROMPTS.includes(`${context}`)).length;
      await whole.observe(together);
      await resumed.observe(alone);
      expect(resumed.openings).toEqual(whole.openings);
      const state = JSON.parse(JSON.stringify(resumed.getState())) as never;
      resumed = sampler(options);
      resumed.setState(state);
    }
    expect(replays).toBeGreaterThan(0);
    expect(whole.openings).toHaveLength(4);
  });

  it("refuses shares and capacities out of range", () => {
    expect(() => sampler({ replay: 1.5 })).toThrow(breaking("out-of-range", "replay"));
    expect(() => sampler({ capacity: 0 })).toThrow(breaking("out-of-range", "capacity"));
  });
});
