import { BLEUReferences, words, type Json } from "@astra-rl/base";
import { describe, expect, it } from "vitest";
import { Conversation } from "@astra-rl/lm";
import { breaking } from "../../../base/test/support/breaking.js";
import { Embedder, HashedNgramEmbedder } from "../../src/models/index.js";
import { Graph, Node } from "../../src/tree/index.js";
import { cosine, entropy, gibberish, Reward, selfBLEUTerm, type RewardTerm } from "../../src/reward/index.js";
import { fieldsOf } from "../support/texts.js";
import { TableScorer, turn } from "./support.js";

const failure = { stage: "target" as const, message: "gone", attempts: 3 };
const node = (probe: string, children: Node[] = [], failed = false) =>
  new Node(
    fieldsOf({ context: "c", probe, response: "r", reward: 0, children, failure: failed ? failure : null }),
  );
const graphs = (...probes: string[]) =>
  probes.map((probe) => new Graph({ context: Conversation.of("c"), children: [node(probe)] }));
const score = async (term: RewardTerm, ...probes: string[]) =>
  (await term.score(probes.map((probe) => turn(probe, "r")))) as number[];
const plain = (state: Json) => JSON.parse(JSON.stringify(state)) as Json;

/** Two numbers a text, from a table. */
class Plane extends Embedder {
  readonly name: string = "plane";
  readonly similarity = 0.9;
  override embed(texts: readonly string[]) {
    const table: Record<string, number[]> = { east: [2, 0], north: [0, 5], between: [1, 1], west: [-1, 0] };
    return Promise.resolve(texts.map((text) => Float32Array.from(table[text] ?? [0, 0])));
  }
}

const TERMS: [string, (history: number | null) => RewardTerm][] = [
  ["selfBleu", (history) => selfBLEUTerm(history === null ? {} : { history })],
  ["cosine", () => cosine(new HashedNgramEmbedder({ buckets: 256 }))],
];

describe.each(TERMS)("%s", (_, make) => {
  it("is 0 without history, and in evaluations", async () => {
    const term = make(null);
    expect(await score(term, "a b c", "a b c")).toEqual([0, 0]);
    await term.observe!(graphs("a b c"));
    expect((await score(term, "a b c"))[0]).toBeLessThan(-0.3);
    const tried = turn("a b c", "r");
    const measured = { ...tried, key: { ...tried.key, purpose: "evaluate" as const } };
    // Turns of both kinds may come in one call.
    const [evaluated, trained] = await term.score([measured, tried]);
    expect(evaluated).toBe(0);
    expect(trained).toBeLessThan(-0.3);
  });

  it("compares with earlier experiences only, for any batching", async () => {
    const term = make(null);
    await term.observe!(graphs("how are the plants today", "tea is fine"));
    const probes = ["how are the plants", "tea", "how are the plants", "so"];
    const together = await score(term, ...probes);
    const alone = [];
    for (const probe of probes) alone.push(...(await score(term, probe)));
    expect(alone).toEqual(together);
    expect(together[0]).toBe(together[2]);
  });

  it("remembers every turn of a tree, except failed ones", async () => {
    const term = make(null);
    const failed = node("never judged", [], true);
    await term.observe!([
      new Graph({
        context: Conversation.of("c"),
        children: [node("first one", [node("second one")]), failed],
      }),
    ]);
    const twin = make(null);
    await twin.observe!(graphs("first one", "second one"));
    expect(term.getState!()).toEqual(twin.getState!());
  });

  it("resumes from its state exactly", async () => {
    for (const history of [null, 3]) {
      const run = [
        "one two three",
        "two three four",
        "one two three",
        "tea",
        "four five six seven",
        "so it is",
      ];
      const whole = make(history);
      const values: number[][] = [];
      for (const probe of run) {
        values.push(await score(whole, "two three four five", probe));
        await whole.observe!(graphs(probe));
      }
      for (let stop = 0; stop <= run.length; stop++) {
        let term = make(history);
        for (const [at, probe] of run.entries()) {
          if (at === stop) {
            const state = plain(term.getState!());
            term = make(history);
            term.setState!(state);
          }
          expect(await score(term, "two three four five", probe)).toEqual(values[at]);
          await term.observe!(graphs(probe));
        }
        expect(term.getState!()).toEqual(whole.getState!());
      }
    }
  });

  it("refuses a state that is not its own", () => {
    expect(() => make(null).setState!({ seen: 3 })).toThrow(breaking("invalid-state"));
    expect(() => make(null).setState!(null)).toThrow(breaking("invalid-state"));
  });
});

describe("selfBleu", () => {
  it("is minus the mean of BLEU-2 to BLEU-5 against all probes so far", async () => {
    const term = selfBLEUTerm();
    const seen = ["How are the plants?", "Tea again, I see.", "How are the plants?"];
    await term.observe(graphs(...seen));
    const references = new BLEUReferences(seen.map(words));
    const [value, exact] = await score(term, "How are the tea plants?", "HOW are the plants?");
    expect(value).toBeCloseTo(-references.overlap(words("How are the tea plants?")), 14);
    expect(value).toBeLessThan(-0.1);
    expect(exact).toBe(-1);
  });

  it("forgets probes beyond its history", async () => {
    const [all, some] = [selfBLEUTerm(), selfBLEUTerm({ history: 2 })];
    for (const term of [all, some]) await term.observe(graphs("a b c d e", "q r s t u", "v w x y z"));
    expect(await score(all, "a b c d e", "q r s t u")).toEqual([-1, -1]);
    expect(await score(some, "a b c d e", "q r s t u")).toEqual([0, -1]);
    expect(all.getState()).toEqual(["a b c d e", "q r s t u", "v w x y z"]);
    expect(some.getState()).toEqual(["q r s t u", "v w x y z"]);
    expect(() => selfBLEUTerm({ history: 0 })).toThrow(breaking("out-of-range", "history"));
  });
});

describe("cosine", () => {
  it("is minus the mean cosine to all probes so far", async () => {
    const term = cosine(new Plane());
    await term.observe(graphs("east", "north", "east", "west"));
    // cosines of "between" with east, north, east, west: ½√2 · (1 + 1 + 1 − 1); of east: 1 + 0 + 1 − 1
    const [between, east, silence] = await score(term, "between", "east", "");
    expect(between).toBeCloseTo(-Math.SQRT1_2 / 2, 6);
    expect(east).toBeCloseTo(-1 / 4, 6);
    expect(silence).toBe(0);
  });

  it("is the mean over all earlier probes, though it keeps only their sum", async () => {
    const embedder = new HashedNgramEmbedder({ buckets: 512 });
    const term = cosine(embedder);
    const seen = ["how are the plants", "tea is fine", "plants again", "how so", "tea is fine"];
    for (const probe of seen) await term.observe(graphs(probe));
    const [text, ...others] = await embedder.embedAndValidate(["how is the tea", ...seen]);
    const cosines = others.map((other) => other.reduce((sum, value, at) => sum + value * text![at]!, 0));
    const mean = cosines.reduce((sum, value) => sum + value, 0) / seen.length;
    expect((await score(term, "how is the tea"))[0]).toBeCloseTo(-mean, 12);
    expect(mean).toBeGreaterThan(0.1);
  });

  it("refuses the state of another embedder", async () => {
    const term = cosine(new Plane());
    await term.observe(graphs("east"));
    const other = cosine(new HashedNgramEmbedder());
    expect(() => other.setState(plain(term.getState()))).toThrow(
      breaking("other-embedder", "hashed-ngrams-4096"),
    );
  });
});

describe("entropy", () => {
  it("is the mean of −log π over the probe's tokens", async () => {
    const said = (testerLogprobs: number[] | null) => ({ ...turn("p", "r"), testerLogprobs });
    const [two, none, unknown] = await entropy().score([said([-1, -2]), said([]), said(null)]);
    expect(two).toBe(1.5);
    expect(none).toBe(0);
    expect(unknown).toMatchObject({
      stage: "reward",
      message: expect.stringMatching(/not known/u) as string,
    });
    expect((await entropy().score([turn("p", "r")]))[0]).toEqual(unknown);
  });
});

describe("gibberish", () => {
  it("is −(1 − P(clean)) by a scorer's label, or minus its score", async () => {
    const scorer = new TableScorer({ p: 0.25 });
    expect(await score(gibberish({ scorer }), "p")).toEqual([-0.25]);
    expect(gibberish({ scorer }).needs).toEqual([]);
    const labelled = Object.assign(new TableScorer({}), {
      labelNames: ["clean", "noise"],
      score: (texts: readonly string[]) =>
        Promise.resolve(texts.map(() => ({ score: 0.9, labels: { clean: 0.75, noise: 0.25 } }))),
    });
    expect(await score(gibberish({ scorer: labelled, clean: "clean" }), "p")).toEqual([-0.25]);
    expect(() => gibberish({ scorer: labelled, clean: "tidy" })).toThrow(breaking("unknown-label", '"tidy"'));
    expect(() => gibberish({ clean: "clean" })).toThrow(breaking("clean-needs-scorer", "clean"));
  });

  it("without a scorer is a logistic function of the target's nats per token, with its own name", async () => {
    const term = gibberish({ midpoint: 4 });
    expect([term.name, term.needs]).toEqual(["gibberish_nll", ["likelihood"]]);
    const told = (nll: number | null) => turn("p", "r", { nll, total: -1, tokens: 1 });
    const [middle, likely, silent, unknown] = await term.score([
      told(4),
      told(4 - Math.log(3)),
      told(null),
      turn("p", "r", null),
    ]);
    expect(middle).toBeCloseTo(-0.5, 14);
    expect(likely).toBeCloseTo(-0.25, 14);
    expect(silent).toBe(-1);
    expect(unknown).toMatchObject({ stage: "likelihood" });
  });

  it("propagates a failure of its scorer", async () => {
    const [value] = await gibberish({ scorer: new TableScorer({ p: null }) }).score([turn("p", "r")]);
    expect(value).toMatchObject({ stage: "scorer", message: "no p" });
  });
});

describe("Reward's clip", () => {
  const flat = (value: number): RewardTerm => ({
    name: "flat",
    needs: [],
    score: (turns) => Promise.resolve(turns.map(() => value)),
  });
  it.each([
    [3, 4, 10],
    [-3, 4, -10],
    [2, 4, 8],
  ])("keeps %d · %d at %d, and the term unchanged", async (value, weight, expected) => {
    const reward = new Reward([{ term: flat(value), weight }], { clip: 10 });
    const [assessment] = await reward.assess([turn("p", "r")]);
    expect(assessment).toMatchObject({ reward: expected, terms: { flat: value } });
  });

  it("keeps failed turns failed, and refuses invalid limits", async () => {
    const broken: RewardTerm = { ...flat(1), score: (turns) => Promise.resolve(turns.map(() => failure)) };
    const [assessment] = await new Reward([{ term: broken, weight: 1 }], { clip: 10 }).assess([
      turn("p", "r"),
    ]);
    expect(assessment!.reward).toBeNaN();
    expect(() => new Reward([{ term: flat(1), weight: 1 }], { clip: 0 })).toThrow(
      breaking("out-of-range", "clip"),
    );
  });
});
