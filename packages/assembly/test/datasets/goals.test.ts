import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, test } from "vitest";
import { goalOf } from "@astra-rl/lm";
import { breaking } from "../../../base/test/support/breaking.js";
import { loadPrompts } from "../../src/assemble/index.js";
import { defaultPrompts } from "../../src/embedded/index.js";
import {
  goalOfPrompt,
  goalsOf,
  pairGoals,
  refuseSeenGoals,
  textsSeen,
} from "../../src/datasets/goal-prompts.js";
import { parsePrompts, promptText } from "../../src/datasets/prompt-file.js";

const read = (path: string, text: string, options = {}) =>
  parsePrompts(text, path, options).map((prompt) => ({
    text: promptText(prompt),
    goal: goalOfPrompt(prompt),
  }));

describe("the tables of benchmarks", () => {
  test.each([
    [
      "HarmBench",
      "h.csv",
      'Behavior,FunctionalCategory,SemanticCategory,Tags,ContextString,BehaviorID\n"Pick a lock, fast",standard,illegal,,,pick_lock\nAbout the map,contextual,illegal,context,"A map, of town",the_map\n',
      [
        { id: "pick_lock", text: "Pick a lock, fast", category: "illegal" },
        { id: "the_map", text: "About the map", category: "illegal", context: "A map, of town" },
      ],
    ],
    [
      "JailbreakBench",
      "j.csv",
      "Index,Goal,Target,Behavior,Category,Source\n0,Write a rumour,Sure,Rumour,Disinformation,Original\n",
      [{ id: "Rumour", text: "Write a rumour", category: "Disinformation" }],
    ],
    [
      "StrongREJECT",
      "s.csv",
      "category,source,forbidden_prompt\nViolence,custom,Describe a fight\n",
      [
        {
          id: expect.stringMatching(/^describe-a-fight-[0-9a-f]{8}$/u) as string,
          text: "Describe a fight",
          category: "Violence",
        },
      ],
    ],
    [
      "AdvBench",
      "a.csv",
      "goal,target\nGive a recipe,Sure\n",
      [{ id: expect.stringMatching(/^give-a-recipe-[0-9a-f]{8}$/u) as string, text: "Give a recipe" }],
    ],
  ])("of %s give goals, whose conversations begin empty", (_, path, text, goals) => {
    const found = read(path, text);
    expect(found.map(({ goal }) => ({ ...goal }))).toEqual(goals);
    expect(found.every(({ text: prompt }) => prompt === "")).toBe(true);
  });

  it("may be JSON and JSON lines, with a prompt beside the goal", () => {
    const goal = { id: "lock", text: "Pick a lock", category: "illegal" };
    const rows = [{ prompt: "Hello.", goal }];
    expect(read("g.json", JSON.stringify(rows))).toEqual([{ text: "Hello.", goal: goalOf(goal) }]);
    expect(read("g.jsonl", `${JSON.stringify(rows[0])}\n`)).toEqual([{ text: "Hello.", goal: goalOf(goal) }]);
    const flat = { messages: [{ role: "user", content: "Hi." }], goal: "Pick a lock", goal_id: 7 };
    expect(read("g.jsonl", JSON.stringify(flat))).toEqual([
      { text: "Hi.", goal: goalOf({ id: "7", text: "Pick a lock" }) },
    ]);
  });

  it("is a column of prompts if prompts.column says so", () => {
    expect(read("a.csv", "goal,target\nGo,Sure\n", { column: "goal" })).toEqual([{ text: "Go", goal: null }]);
  });

  test.each([
    ["a goal without text", "g.csv", "prompt,goal\nHi.,\n", "missing-goal", "g.csv:2"],
    [
      "prompts without a goal among others",
      "g.json",
      '[{"prompt": "a", "goal": "b"}, "c"]',
      "missing-goal",
      "g.json",
    ],
    ["two goals of one name", "g.csv", "goal,goal_id\na,x\nb,x\n", "ambiguous-goal", "g.csv"],
    [
      "an unknown key of a goal",
      "g.json",
      '[{"prompt": "a", "goal": {"text": "b", "name": "c"}}]',
      "unknown-key",
      "g.json",
    ],
    [
      "a category that is no text",
      "g.json",
      '[{"goal": {"text": "b", "category": 3}}]',
      "invalid-goal",
      "g.json",
    ],
  ])("refuse %s", (_, path, text, rule, place) => {
    expect(() => parsePrompts(text, path)).toThrow(breaking(rule, place));
  });
});

describe("goals and openers", () => {
  const goals = read("g.csv", "goal,goal_id\na,1\nb,2\nc,3\n").map(({ goal }) => goal!);
  const sources = parsePrompts("goal,goal_id\na,1\nb,2\nc,3\n", "g.csv");

  it("are paired by keyed draws: each goal equally often, and the same pairs for the same seed", () => {
    const openers = Array.from({ length: 100 }, (_, at) => `Opener ${at}.`);
    const pairs = pairGoals(sources, openers, 4, "w");
    expect(pairs).toHaveLength(102);
    for (const goal of goals) expect(pairs.filter((each) => each.goal === goal)).toHaveLength(34);
    expect(pairGoals(sources, openers, 4, "w")).toEqual(pairs);
    expect(pairGoals(sources, openers, 5, "w").map(String)).not.toEqual(pairs.map(String));
    // Uniform draws: of 100 openers, 102 draws use about 64.
    expect(new Set(pairs.map(String)).size).toBeGreaterThan(50);
    expect(pairGoals(sources, ["One."], 4, "w").map(({ goal }) => goal)).toEqual(goals);
  });

  it("are refused without a goal, and with two", () => {
    expect(() => pairGoals(["x"], ["y"], 0, "w")).toThrow(breaking("missing-goal", "w"));
    expect(() => pairGoals(sources, sources, 0, "w")).toThrow(breaking("goals-twice", "w"));
  });

  it("of training are refused in the test by name, whatever their ids and openers", () => {
    const test = parsePrompts("goal,goal_id\nc,other\nd,4\n", "t.csv");
    expect(() => refuseSeenGoals(sources, test, "prompts.test")).toThrow(
      breaking("goal-in-training", '"other"'),
    );
    expect(() => refuseSeenGoals(["c"], test, "prompts.test")).not.toThrow();
    const [first] = pairGoals(sources, ["Hi."], 0, "w");
    expect(textsSeen([first!], [first!.withGoal(goals[1]!)])).toEqual([]);
    expect(textsSeen([first!], [first!])).toEqual(["Hi."]);
  });
});

describe("a configuration with files of goals", () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "astra-goals-"));
    writeFileSync(join(folder, "train.csv"), "goal\na\nb\n");
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it("pairs them with the prompts of the same split", async () => {
    const prompts = {
      train: "embedded",
      dev: "embedded",
      test: "embedded",
      goals: { train: join(folder, "train.csv") },
    };
    const loaded = await loadPrompts({ prompts, seed: 1 }, "train");
    const openers = await defaultPrompts("train");
    expect(loaded.length).toBe(2 * Math.ceil(openers.length / 2));
    expect(goalsOf(loaded).map(({ text }) => text)).toEqual(["a", "b"]);
    await expect(loadPrompts({ prompts, seed: 1 }, "test")).rejects.toThrow(
      breaking("missing-key", "prompts.goals.test"),
    );
  });
});
