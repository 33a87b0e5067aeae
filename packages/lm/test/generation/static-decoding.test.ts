/**
 * Static steps sample what steps that are computed anew sample. In float64 the CPU has no kernels of ours, so that the calls are
 * those of a GPU; there they would be replayed, here `graph` compares each step with the first.
 */
import { liveTensors, noGrad, ones, scope } from "@astra-rl/torch";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import { rounds } from "../../../../scripts/rounds.js";
import { SeededStream } from "../../../base/test/support/seeded-stream.js";
import {
  DecodeGraphs,
  GenerationSession,
  LoRA,
  initializeGPT2,
  loadCausalLM,
  type CausalLM,
  type Sampling,
  type SessionOptions,
  type Tokenizer,
} from "../../src/index.js";
import { bucketOf } from "../../src/generation/static/buckets.js";
import { StaticStep } from "../../src/generation/static/static-step.js";
import { goldenCausal } from "../golden/families.js";
import { goldenFolder } from "../golden/gpt2.js";
import { expectClose, keysOf } from "./session-setup.js";

const all = [{ name: "gpt2", folder: goldenFolder }, ...goldenCausal];

interface Loaded {
  model: CausalLM;
  tokenizer: Tokenizer;
}

/** A model in float64, and its static steps; every test of the `describe` leaves no tensors beside them. */
function useModel(folder: string) {
  const used = {} as Loaded & { graphs: DecodeGraphs };
  let start = 0;
  beforeAll(async () => {
    start = liveTensors();
    const { model, tokenizer } = await loadCausalLM(folder, { dtype: "float64" });
    Object.assign(used, { model, tokenizer });
  });
  afterAll(() => {
    used.model.dispose();
    expect(liveTensors()).toBe(start);
  });
  beforeEach(() => {
    used.graphs = new DecodeGraphs(used.model);
  });
  afterEach(() => {
    vi.restoreAllMocks();
    used.graphs.dispose();
  });
  return used;
}

/** What a session generates, with static steps or without: the results, its rows, and its work. */
function generated(
  { model, tokenizer }: Loaded,
  prompts: readonly (readonly number[])[],
  sampling: Sampling,
  options: SessionOptions,
) {
  using session = GenerationSession.open(model, tokenizer, prompts, { checkInterval: 4, ...options });
  const first = session.generate(sampling, keysOf(prompts.length));
  // What follows reads the columns, and the last states, that the generation left behind.
  const scores = session.read(prompts.map(() => [1, 2]));
  const second = session.generate({ maxNewTokens: 3 }, keysOf(prompts.length, 1));
  const { tokensPadded: _, ...work } = session.counters;
  return { generations: [first, second], scores, rows: session.rows(), work };
}

function expectEqual(actual: ReturnType<typeof generated>, expected: ReturnType<typeof generated>): void {
  expect(actual.rows).toEqual(expected.rows);
  expect(actual.work).toEqual(expected.work);
  expectClose(actual.scores, expected.scores, 1e-6);
  actual.generations.forEach((generation, at) => {
    const { logprobs, behaviourLogprobs, ...rest } = generation;
    const { logprobs: known, behaviourLogprobs: knownBehaviour, ...same } = expected.generations[at]!;
    expect(rest).toEqual(same);
    expectClose(logprobs, known, 1e-6);
    expectClose(behaviourLogprobs, knownBehaviour, 1e-6);
  });
}

const stream = new SeededStream(3, "static");
const idsOf = (length: number, vocabulary: number) =>
  Array.from({ length }, () => 1 + stream.integer(vocabulary - 1));

describe.each(all)("$name", ({ folder }) => {
  const used = useModel(folder);

  it.each<[string, Sampling]>([
    ["greedy", { maxNewTokens: 9, greedy: true }],
    [
      "sampled, top-k and top-p",
      { maxNewTokens: 10, temperature: 1.2, topK: 20, topP: 0.9, recordBehaviour: true },
    ],
  ])("is decoded alike by static steps: %s", (_, sampling) => {
    const run = vi.spyOn(StaticStep.prototype, "run");
    const prompts = [3, 11, 1].map((length) => idsOf(length, used.model.config.vocabSize));
    const expected = generated(used, prompts, sampling, {});
    expect(run).not.toHaveBeenCalled();
    const before = liveTensors();
    const { graphs } = used;
    expectEqual(generated(used, prompts, sampling, { graphs }), expected);
    expect(run).toHaveBeenCalled();
    graphs.dispose();
    expect(liveTensors()).toBe(before);
  });
});

const folderOf = (name: string) => all.find((each) => each.name === name)!.folder;

describe("a generation with static steps", () => {
  const used = useModel(folderOf("llama2"));
  const prompts = (...lengths: number[]) =>
    lengths.map((length) => idsOf(length, used.model.config.vocabSize));

  it.each<[string, Partial<Sampling>]>([
    ["everything", {}],
    ["temperature", { temperature: 0.7 }],
    ["top-k", { topK: 3 }],
    ["top-p", { topP: 0.6 }],
    ["a repetition penalty", { repetitionPenalty: 1.5, greedy: true }],
    ["a repetition penalty and a minimum length", { repetitionPenalty: 1.3, minNewTokens: 6, topP: 0.8 }],
    ["no recorded log-probabilities", { recordLogprobs: false }],
    ["both log-probabilities", { recordBehaviour: true, topK: 5 }],
  ])("samples with %s", (_, sampling) => {
    const [given, { graphs }] = [prompts(5, 2, 9, 1, 7), used];
    const wanted = { maxNewTokens: 13, ...sampling };
    // Half of the vocabulary ends a generation: rows end at every step, and with a minimum length are held back.
    for (const endIds of [[], Array.from({ length: 40 }, (__, at) => 10 * at)]) {
      const expected = generated(used, given, wanted, { endIds });
      expectEqual(generated(used, given, wanted, { endIds, graphs }), expected);
    }
  });

  it("stops at texts, also across checks, keeping them or not", () => {
    const [given, { graphs }] = [prompts(5, 2, 9, 1, 7, 3), used];
    const { generations } = generated(used, given, { maxNewTokens: 16 }, { endIds: [] });
    const stopStrings = [1, 3, 4]
      .map((row) => generations[0]!.text[row]!.slice(row, row + 2))
      .filter(Boolean);
    expect(stopStrings.length).toBeGreaterThan(1);
    for (const keepStopString of [true, false]) {
      const sampling = { maxNewTokens: 16, stopStrings, keepStopString };
      const expected = generated(used, given, sampling, {});
      expect(expected.generations[0]!.finished).toContain("stop");
      expectEqual(generated(used, given, sampling, { graphs }), expected);
    }
  });

  it(`samples the same for any rows, lengths, ends and checks, ${rounds(12, 100)} times`, () => {
    const { vocabSize, contextLength } = used.model.config;
    for (let round = 0; round < rounds(12, 100); round += 1) {
      const pick = (least: number, most: number) => least + stream.integer(most - least + 1);
      const maxNewTokens = pick(1, 30);
      const given = prompts(
        ...Array.from({ length: pick(1, 9) }, () => pick(1, contextLength - maxNewTokens)),
      );
      const sampling: Sampling = {
        maxNewTokens,
        greedy: pick(0, 3) === 0,
        topK: pick(0, 1) * pick(1, 50),
        topP: pick(5, 10) / 10,
        minNewTokens: pick(0, 1) * pick(0, maxNewTokens),
        repetitionPenalty: pick(0, 2) === 0 ? 1.2 : 1,
      };
      const options = {
        checkInterval: pick(1, 9),
        compaction: pick(0, 2) > 0,
        leastSaving: pick(0, 1) * 2 ** 25,
        endIds: Array.from({ length: pick(0, 60) }, () => pick(0, vocabSize - 1)),
      };
      const expected = generated(used, given, sampling, options);
      expectEqual(generated(used, given, sampling, { ...options, graphs: used.graphs }), expected);
    }
  });

  it("moves to larger buffers as texts grow, and to smaller ones as rows end", () => {
    const step = vi.spyOn(used.graphs, "step");
    const given = prompts(60, 57, 3, 40, 1);
    const sampling = { maxNewTokens: 24, temperature: 1.5 };
    const endIds = Array.from({ length: 12 }, (_, at) => 20 * at);
    const expected = generated(used, given, sampling, { endIds });
    expectEqual(generated(used, given, sampling, { endIds, graphs: used.graphs }), expected);
    const buckets = step.mock.calls.map(([{ rows, capacity }]) => `${rows} x ${capacity}`);
    expect(buckets[0]).toBe("8 x 64");
    expect(new Set(buckets).size).toBeGreaterThan(2);
    expect(buckets.some((bucket) => bucket.endsWith("128"))).toBe(true);
  });

  it("keeps a long row that has ended until it is back in the session's cache", () => {
    const given = prompts(66, 3);
    const sampling = { maxNewTokens: 16, temperature: 1.5 };
    const { generations } = generated(used, given, sampling, { endIds: [] });
    const [long, short] = generations[0]!.ids as [number[], number[]];
    const end = long.findIndex((id, at) => at > 4 && !short.includes(id) && long.indexOf(id) === at);
    expect(end).toBeGreaterThan(4);
    const options = { endIds: [long[end]!], compaction: false };
    const expected = generated(used, given, sampling, options);
    expectEqual(generated(used, given, sampling, { ...options, graphs: used.graphs }), expected);
  });

  it("leaves a full row where it is when only the host knows that it has ended", () => {
    // At the second check, after 7 steps, the long row fills the buffers of 64 columns.
    const given = prompts(57, 3);
    const spelled = { decode: (ids: readonly number[]) => ids.map((id) => `<${id}>`).join("") };
    const loaded = { model: used.model, tokenizer: spelled as unknown as Tokenizer };
    const sampling = { maxNewTokens: 24, temperature: 1.5 };
    const options = { endIds: [], compaction: false };
    const [long, short] = generated(loaded, given, sampling, options).generations[0]!.ids as [
      number[],
      number[],
    ];
    const stop = long.findIndex((id, at) => at > 3 && !short.includes(id) && long.indexOf(id) === at);
    expect(stop).toBeLessThan(8);
    const stopped = { ...sampling, stopStrings: [`<${long[stop]!}>`] };
    const expected = generated(loaded, given, stopped, options);
    const step = vi.spyOn(used.graphs, "step");
    expectEqual(generated(loaded, given, stopped, { ...options, graphs: used.graphs }), expected);
    expect(step.mock.calls[0]![0]).toEqual({ rows: 2, capacity: 64 });
  });

  it("makes each step once, and few tensors", () => {
    const prepare = vi.spyOn(StaticStep.prototype, "prepare");
    const given = prompts(5, 6);
    const generate = () => generated(used, given, { maxNewTokens: 9 }, { endIds: [], graphs: used.graphs });
    const first = generate();
    const before = liveTensors();
    expectEqual(generate(), first);
    expect(liveTensors()).toBe(before);
    expect(prepare).toHaveBeenCalledTimes(1);
  });

  it("is not touched by what was left in the buffers", () => {
    const run = vi.spyOn(StaticStep.prototype, "run");
    const generate = (lengths: number[], graphs: DecodeGraphs | null) => {
      const given = lengths.map((length) => Array.from({ length }, (_, at) => 1 + at));
      return generated(used, given, { maxNewTokens: 30 }, { endIds: [], graphs });
    };
    const expected = [generate([10, 45], null), generate([50, 3], null)];
    for (const [at, lengths] of [
      [10, 45],
      [50, 3],
    ].entries()) {
      expectEqual(generate(lengths, used.graphs), expected[at]!);
      for (const step of run.mock.contexts as StaticStep[]) {
        const { keys, values } = step.cache.buffers;
        scope(() => [...keys, ...values].forEach((buffer) => buffer.fill_(NaN)));
      }
    }
    expectEqual(generate([10, 45], used.graphs), expected[0]!);
  });

  it("reads weights that were updated in place, and refuses replaced ones", () => {
    const given = prompts(5, 6);
    const generate = (graphs: DecodeGraphs | null) =>
      generated(used, given, { maxNewTokens: 9 }, { endIds: [], graphs });
    generate(used.graphs);
    const parameters = used.model.namedParameters();
    scope(() => noGrad(() => [...parameters.values()].forEach((each) => each.mul_(1.1))));
    expectEqual(generate(used.graphs), generate(null));
    scope(() => noGrad(() => [...parameters.values()].forEach((each) => each.div_(1.1))));

    const replaced = ones([1]);
    vi.spyOn(used.model, "namedParameters").mockReturnValue(
      new Map([...parameters].map(([name, each], at) => [name, at === 3 ? replaced : each])),
    );
    expect(() => generate(used.graphs)).toThrow(breaking("constant-changed", "number 4"));
    replaced.dispose();
  });

  it("decodes with an adapter, whose matrices change in place", () => {
    const { model } = used;
    const configuration = { rank: 2, alpha: 4, targetModules: ["q_proj", "down_proj"] };
    const adapter = LoRA.create(model.projections(), configuration, { seed: 1 });
    const view = model.withAdapter(adapter);
    const graphs = new DecodeGraphs(view);
    const given = prompts(5, 6);
    const generate = (own: DecodeGraphs | null) =>
      generated({ ...used, model: view }, given, { maxNewTokens: 9 }, { endIds: [], graphs: own });
    const texts = [0, 1].map((round) => {
      scope(() =>
        noGrad(() => [...adapter.namedParameters().values()].forEach((each) => each.add_(0.3 * round))),
      );
      const found = generate(graphs);
      expectEqual(found, generate(null));
      return found.generations[0]!.ids;
    });
    expect(texts[0]).not.toEqual(texts[1]);
    graphs.dispose();
    adapter.dispose();
  });

  it("is refused for another model, and where the processor has kernels", async () => {
    const { graphs, tokenizer } = used;
    const copy = used.model.copy("float64");
    expect(() => GenerationSession.open(copy, tokenizer, [[1]], { graphs })).toThrow(
      breaking("other-model", "graphs"),
    );
    copy.dispose();
    const { model } = await loadCausalLM(folderOf("llama2"));
    expect(() => new DecodeGraphs(model)).toThrow(breaking("graphs-unavailable", "float32"));
    model.dispose();
  });
});

describe("rows beyond the largest bucket", () => {
  const sizes = { vocabSize: 300, contextLength: 1100, hiddenSize: 8, layers: 1, heads: 2 };
  let model: CausalLM;
  let tokenizer: Tokenizer;
  beforeAll(async () => {
    const loaded = await loadCausalLM(goldenFolder);
    loaded.model.dispose();
    ({ tokenizer } = loaded);
    model = initializeGPT2(sizes, 0, { dtype: "float64" });
  });
  afterAll(() => model.dispose());

  afterEach(() => {
    vi.restoreAllMocks();
  });

  it.each([
    ["long texts leave at the last column", [1005, 3, 990], 40, [] as number[]],
    [
      "many rows enter when enough have ended",
      Array<number>(262).fill(2),
      24,
      Array.from({ length: 20 }, (_, at) => 15 * at),
    ],
  ])("%s", (_, lengths, maxNewTokens, endIds) => {
    const run = vi.spyOn(StaticStep.prototype, "run");
    const before = liveTensors();
    const graphs = new DecodeGraphs(model);
    const given = lengths.map((length) => idsOf(length, sizes.vocabSize));
    const sampling = { maxNewTokens };
    const expected = generated({ model, tokenizer }, given, sampling, { endIds });
    expectEqual(generated({ model, tokenizer }, given, sampling, { endIds, graphs }), expected);
    const steps = run.mock.calls.reduce((sum, [count]) => sum + count, 0);
    expect(steps).toBeGreaterThan(8);
    expect(steps).toBeLessThan(maxNewTokens);
    graphs.dispose();
    expect(liveTensors()).toBe(before);
  });
});

it("buckets are the smallest that hold the rows and columns", () => {
  expect([bucketOf(1, 1), bucketOf(5, 64), bucketOf(49, 65), bucketOf(256, 1024)]).toEqual([
    { rows: 1, capacity: 64 },
    { rows: 8, capacity: 64 },
    { rows: 64, capacity: 128 },
    { rows: 256, capacity: 1024 },
  ]);
  expect([bucketOf(257, 1), bucketOf(1, 1025)]).toEqual([null, null]);
});
