import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { Conversation } from "@astra-rl/lm";
import { Graph, Node, stringifyGraph } from "@astra-rl/method";
import { makePart } from "@astra-rl/assembly";
import { KeywordScorer } from "@astra-rl/scorers";
import { breaking } from "../../base/test/support/breaking.js";
import "../src/kinds.js";
import { FewShotSampler, type FewShotSamplerOptions } from "../src/samplers/index.js";
import { samplerContract } from "../../scorers/test/contract/sampler.contract.js";
import { fieldsOf } from "../../method/test/support/texts.js";
import { ToySystem } from "../../method/test/support/toy-system.js";

const HEADING = "List of questions to ask someone:";
const toy = () => new ToySystem(new KeywordScorer(["bad", "so"].map((term) => ({ term, weight: 0.5 }))));
const sampler = (options: FewShotSamplerOptions = {}) =>
  new FewShotSampler(toy(), [HEADING], { depth: 1, ...options });
const cases = (...entries: [text: string, reward: number][]) =>
  entries.map(([text, reward]) => ({ text, reward }));
const graph = (...entries: [probe: string, reward: number][]) =>
  new Graph({
    context: Conversation.of(HEADING),
    children: entries.map(
      ([probe, reward]) =>
        new Node(fieldsOf({ context: HEADING, probe, response: "r", reward, children: [] })),
    ),
  });

samplerContract("FewShotSampler", {
  create: async (options) => new FewShotSampler(toy(), ["A:", "B:"], options),
  prompts: ["A:", "B:"],
  opening: (prompt) => `${prompt.trimEnd()}\n1.`,
});

const folder = mkdtempSync(join(tmpdir(), "astra-rl-few-shot-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the list that the tester continues", () => {
  it("is the heading and the first number without cases, also in evaluations", async () => {
    const asked = await sampler().rollout(3);
    expect(`${asked.context}`).toBe(`${HEADING}\n1.`);
    expect(`${(await sampler().evalRollout(HEADING)).context}`).toBe(`${HEADING}\n1.`);
    const zeroShot = sampler({ shots: 0, cases: cases(["What now?", 1]) });
    expect(`${(await zeroShot.rollout(3)).context}`).toBe(`${HEADING}\n1.`);
  });

  it("numbers the drawn cases, each once, and ends with the next number", async () => {
    const few = sampler({ shots: 2, cases: cases(["Why?", 0.4], ["Who are you?", 0.6], ["Where?", 0.5]) });
    const { context } = await few.rollout(3);
    const lines = `${context}`.split("\n");
    expect(lines).toHaveLength(4);
    expect([lines[0], lines[3]]).toEqual([HEADING, "3."]);
    expect(lines[1]).toMatch(/^1\. /u);
    expect(lines[2]).toMatch(/^2\. /u);
    expect(new Set([lines[1]!.slice(3), lines[2]!.slice(3)]).size).toBe(2);
  });

  it("draws first cases in proportion to exp(reward / temperature)", async () => {
    // exp(0.2 / 0.2) = e against 1: shares of 0.731 and 0.269.
    const few = sampler({ shots: 1, temperature: 0.2, cases: cases(["hot", 0.2], ["cold", 0]) });
    const starts = Array.from({ length: 2000 }, (_, episode) => ({ seed: 5, episode }));
    const graphs = await few.rolloutMany(starts);
    const share = graphs.filter(({ context }) => `${context}`.includes("hot")).length / graphs.length;
    expect(Math.abs(share - 1 / (1 + Math.exp(-1)))).toBeLessThan(0.03);
  });
});

describe("what becomes a case", () => {
  it("is each rewarded single-line probe, trimmed, with its latest reward", async () => {
    const few = sampler({ capacity: 3 });
    await few.observe([
      graph([" Why? ", 0.1], ["two\nlines", 1], ["  ", 1], ["failed", NaN], ["When?", 0.2]),
      graph(["Why?", 0.7], ["How?", 0.3]),
    ]);
    expect(few.cases).toEqual(cases(["When?", 0.2], ["Why?", 0.7], ["How?", 0.3]));
    await few.observe([graph(["Who?", 0.9])]);
    expect(few.cases.map(({ text }) => text)).toEqual(["Why?", "How?", "Who?"]);
  });

  it("is part of the state, so that a resumed sampler draws the same lists", async () => {
    const one = sampler({ shots: 3 });
    await one.observe([graph(["a", 1], ["b", 2], ["c", 3], ["d", 4])]);
    const other = sampler({ shots: 3 });
    other.setState(JSON.parse(JSON.stringify(one.getState())) as ReturnType<typeof one.getState>);
    for (const episode of [0, 1, 2]) {
      const start = { seed: 1, episode };
      expect(`${(await other.rollout(start)).context}`).toBe(`${(await one.rollout(start)).context}`);
    }
    expect(() => other.setState({ ...one.getState(), cases: [{ text: 1 }] })).toThrow(
      breaking("invalid-state"),
    );
  });

  it("is read from the graphs of an earlier run", async () => {
    const file = join(folder, "graphs.jsonl");
    writeFileSync(file, `${stringifyGraph(graph(["Why?", 0.5], ["How?", NaN]))}\n`);
    const parts = { system: toy(), prompts: [HEADING], seed: 0 };
    const section = {
      type: "few-shot",
      depth: 1,
      shots: 2,
      temperature: 1,
      capacity: 9,
      maxTurns: 100,
      width: 1,
    };
    const made = await makePart("sampler", { ...section, cases: file }, parts);
    expect((made as unknown as FewShotSampler).cases).toEqual(cases(["Why?", 0.5]));
    const absent = { ...section, cases: join(folder, "none.jsonl") };
    await expect(makePart("sampler", absent, parts)).rejects.toThrow(breaking("file-not-found"));
  });

  it.each([
    [{ shots: -1 }, /shots must be a whole number of at least 0, got -1/u],
    [{ temperature: 0 }, /temperature must be positive, got 0/u],
    [{ capacity: 0 }, /capacity must be a whole number of at least 1, got 0/u],
  ])("refuses %o", (options, message) => {
    expect(() => sampler(options)).toThrow(message);
  });
});

describe("a system whose target reads the probe alone", () => {
  it("passes the target only the probe, and keeps the context in the state", async () => {
    class Watched extends ToySystem {
      readonly read: string[] = [];
      override rolloutPromptWithTarget(prompts: readonly Conversation[]): Promise<string[]> {
        this.read.push(...prompts.map(String));
        return super.rolloutPromptWithTarget(prompts);
      }
    }
    const scorer = new KeywordScorer(["bad"].map((term) => ({ term })));
    const system = new Watched(scorer, { targetReads: "probe" });
    const { children } = await new FewShotSampler(system, [HEADING], { depth: 1, width: 3 }).rollout(1);
    expect(system.read).toEqual(children.map(({ probe }) => probe.text));
    expect(children.map(({ context }) => `${context}`)).toEqual(children.map(() => `${HEADING}\n1.`));
    expect(() => new ToySystem(scorer, { targetReads: "all" as "probe" })).toThrow(
      breaking("unknown-choice", "targetReads"),
    );
  });
});
