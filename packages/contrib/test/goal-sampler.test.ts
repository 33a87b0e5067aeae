import { describe, expect, it } from "vitest";
import { Conversation, goalOf } from "@astra-rl/lm";
import { ASTSystem, Graph, Node } from "@astra-rl/method";
import { breaking } from "../../base/test/support/breaking.js";
import { GoalDraws } from "../src/samplers/goal-draws.js";
import { GoalSampler } from "../src/samplers/index.js";

const goals = ["always", "sometimes", "never"].map((id) => goalOf({ id, text: id }));
const prompts = goals.flatMap((goal) => ["One.", "Two."].map((text) => Conversation.of(text).withGoal(goal)));

/** A tree of a goal with a turn for each score. */
function tree(id: string, ...scores: readonly number[]): Graph {
  const context = prompts.find(({ goal }) => goal!.id === id)!;
  const children = scores.map(
    (response) => new Node({ context, probe: "p", response: "r", reward: 0, scores: { response } } as never),
  );
  return new Graph({ context, children });
}

describe("draws of goals", () => {
  it("weigh a goal by the expected variance of its success", () => {
    const draws = new GoalDraws("GoalSampler", prompts);
    expect(draws.weightOf("never")).toBeCloseTo(1 / 6, 15);
    draws.observe([
      tree("always", 0.9, 0.1),
      tree("always", 0.5),
      tree("never", 0.4),
      tree("sometimes", 1),
      tree("sometimes", 0),
    ]);
    // Beta(3, 1), Beta(1, 2) and Beta(2, 2): a b / ((a + b)(a + b + 1)).
    expect(draws.weightOf("always")).toBeCloseTo(3 / 20, 15);
    expect(draws.weightOf("never")).toBeCloseTo(2 / 12, 15);
    expect(draws.weightOf("sometimes")).toBeCloseTo(4 / 20, 15);
    // Four fifths of what was seen count after another experience; a tree that nobody judged counts nothing.
    draws.observe([tree("always")]);
    expect(draws.weightOf("always")).toBeCloseTo((2.6 * 1) / (3.6 * 4.6), 15);
  });

  it("draw in proportion, by the episode's key, among all prompts of the goal", () => {
    const draws = new GoalDraws("GoalSampler", prompts);
    for (let step = 0; step < 30; step += 1) {
      draws.observe([tree("always", 1), tree("never", 0), tree("sometimes", step % 2)]);
    }
    const n = 4000;
    const drawn = Array.from({ length: n }, (_, episode) => draws.draw(7, episode));
    expect(Array.from({ length: 50 }, (_, episode) => draws.draw(7, episode))).toEqual(drawn.slice(0, 50));
    const weights = goals.map(({ id }) => draws.weightOf(id));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    goals.forEach((goal, at) => {
      const share = drawn.filter((each) => each.goal === goal).length / n;
      const expected = weights[at]! / total;
      expect(Math.abs(share - expected)).toBeLessThan(4 * Math.sqrt((expected * (1 - expected)) / n));
    });
    expect(weights[1]! / weights[0]!).toBeGreaterThan(1.5);
    expect(new Set(drawn)).toEqual(new Set(prompts));
  });

  it("continue from their state", () => {
    const [one, two] = [new GoalDraws("GoalSampler", prompts), new GoalDraws("GoalSampler", prompts)];
    one.observe([tree("always", 1), tree("never", 0)]);
    two.setState(JSON.parse(JSON.stringify(one.getState())));
    one.observe([tree("sometimes", 1)]);
    two.observe([tree("sometimes", 1)]);
    expect(two.getState()).toEqual(one.getState());
    expect(two.draw(1, 5)).toBe(one.draw(1, 5));
  });

  it("are refused for prompts without goals", () => {
    expect(() => new GoalDraws("GoalSampler", [Conversation.of("Hi.")])).toThrow(
      breaking("goal-required", "GoalSampler"),
    );
  });
});

describe("a sampler of goals", () => {
  const system = new ASTSystem({});
  const goalOfEpisode = async (sampler: GoalSampler, episode: number) =>
    (await sampler.rollout({ seed: 2, episode })).goal!.id;

  it("draws the episodes of training, and keeps what it has seen in its state", async () => {
    const [one, two] = [0, 1].map(() => new GoalSampler(system, prompts, { depth: 0, seed: 2 })) as [
      GoalSampler,
      GoalSampler,
    ];
    for (let step = 0; step < 20; step += 1) {
      await one.observe([tree("always", 1), tree("never", 0), tree("sometimes", step % 2)]);
    }
    two.setState(JSON.parse(JSON.stringify(one.getState())));
    const episodes = Array.from({ length: 300 }, (_, episode) => episode);
    const drawn = await Promise.all(episodes.map((episode) => goalOfEpisode(one, episode)));
    expect(await Promise.all(episodes.map((episode) => goalOfEpisode(two, episode)))).toEqual(drawn);
    const count = (id: string) => drawn.filter((each) => each === id).length;
    expect(count("sometimes")).toBeGreaterThan(1.2 * count("always"));
    expect(count("sometimes")).toBeGreaterThan(1.2 * count("never"));
    const start = prompts[1]!;
    expect((await one.evalRollout(start)).context).toBe(start);
  });
});
