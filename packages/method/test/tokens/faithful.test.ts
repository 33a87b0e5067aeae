import { fileURLToPath } from "node:url";
import { Tokenizer, type Conversation, type Message } from "@astra-rl/lm";
import { liveTensors } from "@astra-rl/torch";
import { describe, expect, it } from "vitest";
import { variants } from "../../../../scripts/rounds.js";
import { KeywordScorer } from "@astra-rl/scorers";
import type { Graph, Node, NodeKey } from "../../src/tree/index.js";
import { HFASTSystem, type MessageOrText, type HFASTSystemOptions } from "../../src/system/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { expectClose, keptOf, logprobsOf, recomputed, tokensOf } from "../support/faithful.js";

const golden = (name: string) => fileURLToPath(new URL(`../../../lm/test/golden/${name}`, import.meta.url));

/** Every kind of tokenizer that a causal model of ours comes with, and what it puts before a text. */
const FAMILIES = {
  gpt2: golden("gpt2"), // bytes, nothing before a text
  llama2: golden("families/llama2"), // SentencePiece with bytes to fall back on, <s>
  llama3: golden("families/llama3-sharded"), // bytes, <|begin_of_text|> by a post-processor
  mistral: golden("families/mistral"), // Metaspace, <s>
  qwen2: golden("families/qwen2"), // bytes after NFC
  "qwen2-bos": golden("families/qwen2-bos"),
};
const NAMES = Object.keys(FAMILIES) as (keyof typeof FAMILIES)[];
/** Each with the next one, and in the night with every one. */
const PAIRS = NAMES.flatMap((tester, at) => {
  const next = [...NAMES.slice(at + 1), ...NAMES.slice(0, at + 1)];
  return variants(next).map((target) => [tester, target] as const);
});

const SPELLED = { skipSpecialTokens: false };

const PROMPTS = ["Hello there. ", "  two spaces, a tab\tand 日本語 👋🏽 שלום\n", "K"];

/** An utterance was cut inside a character, which no text can tell. */
const isCut = (text: string) => text.includes("\ufffd");

/** Models without any training say bytes that are no text: each row speaks until its utterance is whole characters. */
class WholeCharacters extends HFASTSystem {
  override rolloutPromptWithTester(contexts: readonly Conversation[], keys: readonly NodeKey[]) {
    return this.#untilWhole(keys, (draws, rows) =>
      super.rolloutPromptWithTester(
        rows.map((row) => contexts[row]!),
        draws,
      ),
    );
  }

  override rolloutPromptWithTarget(prompts: readonly Conversation[], keys: readonly NodeKey[]) {
    return this.#untilWhole(keys, (draws, rows) =>
      super.rolloutPromptWithTarget(
        rows.map((row) => prompts[row]!),
        draws,
      ),
    );
  }

  async #untilWhole(
    keys: readonly NodeKey[],
    speak: (draws: readonly NodeKey[], rows: readonly number[]) => Promise<readonly MessageOrText<Message>[]>,
  ): Promise<MessageOrText<Message>[]> {
    const said: MessageOrText<Message>[] = [];
    let waiting = keys.map((_, row) => row);
    for (let draw = 0; waiting.length > 0; draw += 1) {
      const texts = await speak(
        waiting.map((row) => this.redraw(keys[row]!, draw)),
        waiting,
      );
      waiting.forEach((row, at) => (said[row] = texts[at]!));
      waiting = waiting.filter((row) => isCut(String(said[row]!)));
    }
    return said;
  }
}

const load = (tester: string, target: string, options: Partial<HFASTSystemOptions> = {}) =>
  WholeCharacters.load({
    // Rows of chat templates are compared with the templates' texts elsewhere.
    tester: { path: tester, format: "plain" },
    target: { path: target, format: "plain" },
    scorer: new KeywordScorer([{ pattern: "a", weight: 0.3 }]),
    inferenceDtype: "float32",
    generation: { tester: { maxNewTokens: 4, topK: 0 }, target: { maxNewTokens: 3, topK: 0 } },
    log: () => {},
    ...options,
  });

const nodesOf = (graph: Graph): Node[] => {
  const below = (nodes: readonly Node[]): Node[] => nodes.flatMap((node) => [node, ...below(node.children)]);
  return below(graph.children);
};

/** Whole rows as `tokenizer.decode` reads them, special tokens spelled out, as they are in the record. */
class Reader {
  readonly #tokenizer: Tokenizer;
  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }
  static async of(folder: string): Promise<Reader> {
    return new Reader(await Tokenizer.load(folder));
  }
  get prefix(): readonly number[] {
    return this.#tokenizer.prefixIds;
  }
  /** The text of a row that begins with what the tokenizer puts before a text. */
  row(ids: readonly number[]): string {
    if (this.prefix.some((id, at) => ids[at] !== id))
      throw new Error(`a row without ${String(this.prefix)} before it: ${String(ids)}`);
    return this.#tokenizer.decode(ids.slice(this.prefix.length), { ...SPELLED, cleanUpSpaces: false });
  }
}

/** Special tokens that were sampled within utterances, over all tests of this file. */
let spelled = 0;

/**
 * Each side's row, decoded by its own tokenizer, against the record; log P as the target's reading gave it against one pass
 * over the row. The number of turns that were compared letter by letter.
 */
async function expectFaithfulPair(
  system: HFASTSystem,
  graphs: readonly Graph[],
  readers: { tester: Reader; target: Reader },
  target: string,
): Promise<number> {
  const nodes = graphs.flatMap(nodesOf);
  const rows = nodes.map((node) => {
    const { tester, target: heard, edited } = tokensOf(system, node);
    expect(edited).toBeUndefined();
    const asked = [...heard!.context, ...heard!.heard];
    const whole = {
      tester: readers.tester.row([...tester!.context, ...tester!.probe]),
      target: readers.target.row([...asked, ...heard!.response]),
    };
    expect(whole).toEqual({
      tester: `${node.context}${node.probe}`,
      target: `${node.context}${node.probe}${node.response}`,
    });
    expect(readers.target.row(asked)).toBe(String(system.promptForTarget(node.context, node.probe)));
    expect(tester!.probe).toEqual(keptOf(node.probe));
    expect(heard!.response).toEqual(keptOf(node.response));
    for (const { text } of [node.probe, node.response]) spelled += (text.match(/<[^<>\s]+>/gu) ?? []).length;
    // Nothing stands between what was read before and the probe: the plain format puts nothing around it.
    expect(heard!.heard).toEqual(heard!.probe);
    for (const child of node.children) {
      const held = [...tester!.context, ...tester!.probe];
      const tokens = tokensOf(system, child);
      expect(tokens.tester!.context.slice(0, held.length)).toEqual(held);
      expect(tokens.target!.context).toEqual([...asked, ...heard!.response]);
    }
    return { context: heard!.context, continuation: heard!.probe };
  });
  const work = system.counters();
  const recorded = await logprobsOf(system, "getTargetLogprobs", nodes);
  // Known from the prefill.
  expect(system.counters()).toEqual(work);
  const said = rows.flatMap(({ continuation }, row) => (continuation.length > 0 ? [row] : []));
  expectClose(
    said.map((row) => recorded[row]!),
    await recomputed(
      target,
      said.map((row) => rows[row]!),
    ),
  );
  return nodes.length;
}

describe.each(PAIRS)("a tester with %s's tokenizer and a target with %s's", (testerName, targetName) => {
  const folders = { tester: FAMILIES[testerName], target: FAMILIES[targetName] };

  it("read exactly what is recorded, and record exactly what they read", async () => {
    const start = liveTensors();
    const readers = { tester: await Reader.of(folders.tester), target: await Reader.of(folders.target) };
    const system = await load(folders.tester, folders.target);
    try {
      const sampler = new ASTSampler(system, PROMPTS, { width: 2, depth: 2 });
      const graphs = await sampler.rolloutMany(PROMPTS.map((_, episode) => ({ seed: 11, episode })));
      const compared = await expectFaithfulPair(system, graphs, readers, folders.target);
      expect(compared).toBe(PROMPTS.length * 6);
    } finally {
      system.dispose();
    }
    expect(liveTensors()).toBe(start);
  });
});

let silences = 0;
describe.each(NAMES)("%s's tokenizer", (name) => {
  const folder = FAMILIES[name];

  it("keeps its prefix when a model's window is full, turn after turn", async () => {
    const start = liveTensors();
    const reader = await Reader.of(folder);
    const system = await load(folder, folder);
    try {
      const prompt = "The morning train was late again, and nobody said why. ".repeat(8);
      const sampler = new ASTSampler(system, [prompt], { width: 2, depth: 2 });
      const [graph] = await sampler.rolloutMany([{ seed: 5, episode: 0 }]);
      const nodes = nodesOf(graph!);
      expect(nodes).toHaveLength(6);
      for (const node of nodes) {
        const { tester, target } = tokensOf(system, node);
        const spoken = {
          tester: { ids: tester!.context, said: `${node.context}` },
          target: { ids: [...target!.context, ...target!.heard], said: `${node.context}${node.probe}` },
        };
        for (const { ids, said } of Object.values(spoken)) {
          expect(ids.length).toBeLessThan(system.tester.model.config.contextLength);
          expect(ids.length).toBeGreaterThan(system.tester.model.config.contextLength / 2);
          expect(said.endsWith(reader.row(ids).trimStart())).toBe(true);
        }
      }
    } finally {
      system.dispose();
    }
    expect(liveTensors()).toBe(start);
  });

  it("ends messages at stop ids, of which only those with a text stay in rows", async () => {
    const start = liveTensors();
    const tokenizer = await Tokenizer.load(folder);
    const reader = new Reader(tokenizer);
    const all = Array.from({ length: tokenizer.vocabSize }, (_, id) => id);
    const special = all.filter(
      (id) => tokenizer.decode([id]) === "" && tokenizer.decode([id], SPELLED) !== "",
    );
    expect(special.length).toBeGreaterThan(0);
    // Half of the vocabulary, so that models without any training run into one soon.
    const stopIds = [...new Set([...special, ...all.filter((id) => id % 2 === 0)])];
    const system = await load(folder, folder, {
      generation: {
        tester: { maxNewTokens: 8, topK: 0, stopIds },
        target: { maxNewTokens: 8, topK: 0, stopIds },
      },
    });
    try {
      const sampler = new ASTSampler(system, PROMPTS, { width: 2, depth: 2 });
      const graphs = await sampler.rolloutMany(PROMPTS.map((_, episode) => ({ seed: 3, episode })));
      await expectFaithfulPair(system, graphs, { tester: reader, target: reader }, folder);
      let visible = 0;
      let silent = 0;
      for (const node of graphs.flatMap(nodesOf)) {
        for (const [sampled, kept] of [
          [node.probe.sampled!.ids, keptOf(node.probe)],
          [node.response.sampled!.ids, keptOf(node.response)],
        ] as const) {
          // Only the last id that was sampled may be one that stops.
          for (const id of sampled.slice(0, -1)) expect(stopIds).not.toContain(id);
          for (const id of kept) expect(special).not.toContain(id);
          if (sampled.length > kept.length) {
            expect(special).toContain(sampled.at(-1));
            expect(kept).toEqual(sampled.slice(0, -1));
            silent += 1;
          } else if (stopIds.includes(kept.at(-1)!)) visible += 1;
        }
      }
      expect(visible).toBeGreaterThan(0);
      silences += silent;
    } finally {
      system.dispose();
    }
    expect(liveTensors()).toBe(start);
  });
});

it("some of these messages end with a special token, some contain one", () => {
  expect(silences).toBeGreaterThan(3);
  expect(spelled).toBeGreaterThan(3);
});
