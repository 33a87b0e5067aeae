import { fileURLToPath } from "node:url";
import { initializeGPT2, loadCausalLM, Tokenizer, Conversation, type LoadedCausalLM } from "@astra-rl/lm";
import { liveTensors } from "@astra-rl/torch";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { rounds } from "../../../../scripts/rounds.js";
import { KeywordScorer } from "@astra-rl/scorers";
import { expand, Node, type ExpandRequest, type Outcome } from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTSystem, type HFASTSystemOptions } from "../../src/system/index.js";
import { growLevel, logprobsOf, pairsOf, turn as tokens } from "../support/faithful.js";
import { localTarget } from "../support/local-target.js";

const golden = (name: string) => fileURLToPath(new URL(`../../../lm/test/golden/${name}`, import.meta.url));
const GPT2 = golden("gpt2");
const QWEN = golden("families/qwen2");

const load = (options: Partial<HFASTSystemOptions> = {}) =>
  HFASTSystem.load({
    tester: GPT2,
    target: GPT2,
    scorer: new KeywordScorer(["a", "e"].map((term) => ({ pattern: term, weight: 0.3 }))),
    inferenceDtype: "float32",
    generation: { tester: { maxNewTokens: 5, topK: 0 }, target: { maxNewTokens: 4, topK: 0 } },
    log: () => {},
    ...options,
  });

/**
 * A checkpoint that computes in float64, in whatever type a system asks for it.
 *
 * The width of a product decides the order of its sums, and so the last digits of the logits: up to 1e-5 in float32.
 * That is enough to draw another token where a draw falls on the border of two, where two tokens change ranks, or where
 * the border of top-p does: once in some 20,000 tokens here. Draws round the logits to float32 first, so that logits
 * that differ by 1e-14 are all but always the same, and equal draws can be asked for, whatever the trees.
 */
async function loadExact(folder: string): Promise<LoadedCausalLM> {
  const loaded = await loadCausalLM(folder, { dtype: "float64" });
  const { model } = loaded;
  const copy = model.copy.bind(model);
  model.copy = () => copy("float64");
  return loaded;
}

function expectClose(
  actual: readonly number[] | null,
  expected: readonly number[] | null,
  within: number,
): void {
  expect(actual?.length).toBe(expected?.length);
  actual?.forEach((value, at) => expect(Math.abs(value - expected![at]!)).toBeLessThan(within));
}

/** A node and the same node grown another way. */
interface Twin {
  batched: Node;
  single: Node;
  /** Contexts of their children. */
  next: [batched: Conversation, single: Conversation];
}

describe.each<[string, string, Partial<HFASTSystemOptions>]>([
  ["one checkpoint", GPT2, {}],
  ["a cache that holds next to nothing", GPT2, { cacheBytes: 40_000 }],
  ["a target with another tokenizer", QWEN, {}],
])("random trees over %s", (_, targetFolder, options) => {
  let system: HFASTSystem;
  let start: number;
  beforeAll(async () => {
    start = liveTensors();
    const tester = await loadExact(GPT2);
    const target = targetFolder === GPT2 ? tester : await loadExact(targetFolder);
    system = await load({ tester, target, ...options });
    // The system generates with its own copies.
    for (const { model } of new Set([tester, target])) model.dispose();
    expect([system.tester.model.computeDtype, localTarget(system).model.computeDtype]).toEqual([
      "float64",
      "float64",
    ]);
  });
  afterAll(() => {
    system.dispose();
    expect(liveTensors()).toBe(start);
  });

  const prompt = fc.oneof(
    fc.constantFrom("", "Hello there. ", "日本 👋 ", "e\u0301\u0301", "\u202eשלום"),
    fc.string({ unit: "grapheme", maxLength: 20 }),
  );
  // A level is a list of parents, by number: any node may have any number of children, in any order, siblings apart.
  const level = fc.record({
    parents: fc.array(fc.nat(), { minLength: 1, maxLength: 7 }),
    /** Parents may be older than the level before. */
    late: fc.boolean(),
  });

  it("grow level by level as node by node, for any widths and orders", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(prompt, { minLength: 1, maxLength: 3 }),
        fc.array(level, { minLength: 1, maxLength: 4 }),
        fc.nat(1000),
        async (prompts, levels, seed) => {
          try {
            let node = 0;
            const all: Twin[] = [];
            let previous: Twin[] = [];
            for (const [depth, { parents, late }] of levels.entries()) {
              const candidates = late ? all : previous;
              const chosen = parents.map((number) =>
                depth === 0 ? null : candidates[number % candidates.length]!,
              );
              const request = (row: number, side: 0 | 1): ExpandRequest => {
                const twin = chosen[row];
                const key = { seed, episode: 0, node: node + row };
                if (!twin) return { context: Conversation.of(prompts[parents[row]! % prompts.length]!), key };
                return { context: twin.next[side], key };
              };
              const rows = parents.map((_number, row) => row);
              const batched = await expand(
                system,
                rows.map((row) => request(row, 0)),
              );
              const singles: Outcome[] = [];
              for (const row of rows) singles.push(...(await growLevel(system, [request(row, 1)])));
              node += rows.length;
              previous = rows.map((row) => {
                const make = ({ next: _next, ...fields }: Outcome, side: 0 | 1) =>
                  new Node({ ...fields, context: request(row, side).context });
                return {
                  batched: make(batched[row]!, 0),
                  single: make(singles[row]!, 1),
                  next: [batched[row]!.next, singles[row]!.next],
                };
              });
              all.push(...previous);
            }
            for (const { batched, single, next } of all) {
              const text = ({ context, probe, response }: Node) => [`${context}`, probe.text, response.text];
              expect(text(batched)).toEqual(text(single));
              expect(`${next[0]}`).toBe(`${next[1]}`);
              const [a, b] = [tokens(system, batched), tokens(system, single)];
              expect([a.testerContext, a.targetContext, a.probe, a.response]).toEqual([
                b.testerContext,
                b.targetContext,
                b.probe,
                b.response,
              ]);
              expectClose(a.testerLogprobs, b.testerLogprobs, 1e-5);
              const twins = [batched, single];
              const target = await logprobsOf(system, "getTargetLogprobs", twins);
              const baseline = await logprobsOf(system, "getBaselineLogprobs", twins);
              expectClose(target[0]!, target[1]!, 1e-5);
              expectClose(baseline[0]!, baseline[1]!, 1e-5);
              for (const logprob of [...a.testerLogprobs, ...target[0]!]) {
                expect(Number.isFinite(logprob) && logprob <= 0).toBe(true);
              }
              expect(Math.abs(batched.reward - single.reward)).toBeLessThan(1e-5);
            }
          } finally {
            system.release();
          }
        },
      ),
      { numRuns: rounds(6, 25) },
    );
  });
});

/** Distinct beginnings of some sequences, as texts of ids. */
function beginnings(sequences: readonly (readonly number[])[], from: readonly number[] = []): Set<string> {
  const found = new Set<string>();
  sequences.forEach((sequence, row) => {
    for (let length = (from[row] ?? 0) + 1; length <= sequence.length; length += 1) {
      found.add(sequence.slice(0, length).join());
    }
  });
  return found;
}

/**
 * The minimum that a model must read: every distinct prefix of its input once, and its own
 * messages not at all, since they were generated.
 */
function leastRead(
  read: readonly (readonly number[])[],
  said: readonly (readonly number[])[],
  from: readonly number[],
): number {
  const own = beginnings(said, from);
  return [...beginnings(read)].filter((beginning) => !own.has(beginning)).length;
}

describe("the work of a tree of width 2 and depth 3", () => {
  let other: LoadedCausalLM;
  beforeAll(async () => {
    const { vocabSize } = (await loadCausalLM(GPT2).then((loaded) => {
      const { config } = loaded.model;
      loaded.model.dispose();
      return config;
    }))!;
    // Another checkpoint with the tester's tokenizer, and room for whole conversations.
    const sizes = { vocabSize, contextLength: 64, hiddenSize: 16, layers: 1, heads: 2, eosId: 0, bosId: 0 };
    const model = initializeGPT2(sizes, 8);
    const tokenizer = await Tokenizer.load(GPT2);
    other = {
      model,
      tokenizer,
      generation: { bosId: 0, eosIds: [0], padId: null },
      unusedTensors: [],
    };
  });
  afterAll(() => other.model.dispose());

  it.each([
    ["its own checkpoint", false],
    ["another checkpoint", true],
  ])("is minimal for every role, with %s as target", async (_, separate) => {
    const system = await load({
      target: separate ? other : GPT2,
      generation: { tester: { maxNewTokens: 6, topK: 0 }, target: { maxNewTokens: 5, topK: 0 } },
    });
    const [graph] = await new ASTSampler(system, ["How are you? "], { width: 2, depth: 3 }).rolloutMany([4]);
    const nodes = [...graph!.nodes()];
    expect(nodes).toHaveLength(14);
    const turns = nodes.map((node) => tokens(system, node));
    // Siblings with equal texts are two nodes; this seed has none, so prefixes identify nodes.
    expect(new Set(turns.map((turn) => [...turn.testerContext, ...turn.probe.kept].join())).size).toBe(14);

    const sum = (lengths: readonly number[]) => lengths.reduce((total, length) => total + length, 0);
    const heard = turns.map((turn) => [...turn.targetContext, ...turn.probe.heard]);
    const rollout = {
      tester: {
        read: leastRead(
          turns.map((turn) => turn.testerContext),
          turns.map((turn) => [...turn.testerContext, ...turn.probe.kept]),
          turns.map((turn) => turn.testerContext.length),
        ),
        generated: sum(turns.map((turn) => turn.probe.sampled.length)),
        trained: 0,
      },
      target: {
        read: leastRead(
          heard,
          turns.map((turn, row) => [...heard[row]!, ...turn.response.kept]),
          heard.map((row) => row.length),
        ),
        generated: sum(turns.map((turn) => turn.response.sampled.length)),
        trained: 0,
      },
      baseline: { read: 0, generated: 0, trained: 0 },
    };
    expect(system.counters()).toEqual(rollout);

    // Training and the reference read every distinct beginning once; a probe's last token is predicted, not read.
    const pairs = pairsOf(nodes);
    const scored = beginnings(
      turns.map((turn) => [...turn.testerContext, ...turn.probe.sampled.slice(0, -1)]),
    ).size;
    (await system.getTesterLogprobs(...pairs)).dispose();
    for (let time = 0; time < 2; time += 1) (await system.getBaselineLogprobs(...pairs)).dispose();
    expect(system.counters()).toEqual({
      ...rollout,
      tester: { ...rollout.tester, trained: scored },
      // The same weights as the target's have already read the probes; others read them, once however often asked.
      baseline: { ...rollout.baseline, read: separate ? scored : 0 },
    });
    system.dispose();
  });
});

describe("a conversation of more than 1,000 tokens", () => {
  it("grows turn by turn within a model's window, without dropping or rereading tokens", async () => {
    const tokenizer = await Tokenizer.load(GPT2);
    const sizes = { contextLength: 1280, hiddenSize: 16, layers: 2, heads: 2, eosId: 0, bosId: 0 };
    const model = initializeGPT2({ ...sizes, vocabSize: tokenizer.vocabSize }, 2);
    const loaded: LoadedCausalLM = {
      model,
      tokenizer,
      generation: { bosId: 0, eosIds: [0], padId: null },
      unusedTensors: [],
    };
    const said: string[] = [];
    const spoken = { maxNewTokens: 36, minNewTokens: 36 };
    const system = await load({
      tester: loaded,
      target: loaded,
      generation: { tester: spoken, target: spoken },
      log: (message) => said.push(message),
    });
    const sampler = new ASTSampler(system, ["Hello there. "], { width: 1, depth: 15 });
    const [graph] = await sampler.rolloutMany([0]);
    const nodes = [...graph!.nodes()];
    const last = tokens(system, nodes.at(-1)!);
    const length = last.testerContext.length + last.probe.sampled.length;
    expect(length).toBeGreaterThan(1000);
    expect(said).toEqual([]);
    const { tester, target } = system.counters();
    const prompt = tokens(system, nodes[0]!).testerContext.length;
    expect(tester!.read + tester!.generated).toBe(length);
    expect(target!.read).toBe(prompt + 15 * 36);

    const table = await system.getTesterLogprobsAndValidate(...pairsOf(nodes));
    table.rows().forEach((row, index) => {
      expect(row).toHaveLength(36);
      expectClose(row, tokens(system, nodes[index]!).testerLogprobs, 2e-4);
    });
    table.dispose();
    system.dispose();
    model.dispose();
  });
});
