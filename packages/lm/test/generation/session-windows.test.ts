import { describe, expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import { GenerationSession, type Sampling } from "../../src/index.js";
import { referenceGenerate, referenceLogprobs } from "../reference-decoding.js";
import { expectClose, expectSame, keysOf, goldenModels, stream, useGolden } from "./session-setup.js";

describe.each(goldenModels)("full windows and rewritten rows over the golden %s", (name, folder) => {
  const golden = useGolden(folder);
  const { open, prompts, randomIds } = golden;

  it("truncates a full window on the left, counts the tokens prefilled again, and warns once", () => {
    const { contextLength } = golden.model.config;
    const messages: string[] = [];
    const given = prompts([contextLength + 30, contextLength - 3, 4]);
    using session = open(given, { log: (message) => messages.push(message) });
    const sampling: Sampling = { maxNewTokens: 10, topK: 30 };
    const spoken = session.generate(sampling, keysOf(3));
    // Nothing had been prefilled before the truncation, so nothing was prefilled twice.
    expect(session.counters).toMatchObject({ tokensRead: 2 * (contextLength - 10) + 4, tokensReread: 0 });
    const context = given.map((prompt, row) => {
      const expected = referenceGenerate(golden.model, golden.tokenizer, prompt, sampling, keysOf(3)[row]!);
      expect(spoken.ids[row]).toEqual(expected.ids);
      return expected.row;
    });
    const heard = prompts([6, 1, 5]);
    const expected = heard.map((tokens, row) => {
      context[row] = [...context[row]!, ...tokens].slice(-contextLength);
      return referenceLogprobs(golden.model, context[row]!.slice(0, -tokens.length), tokens);
    });
    expectClose(session.read(heard), expected);
    expect(session.rows()).toEqual(context);
    const dropped = context.filter((ids) => ids.length === contextLength).length;
    // Tokens of a full row that remain after truncation and were prefilled before: all but the new ones and the pending
    // one.
    expect(session.counters.tokensReread).toBeLessThanOrEqual(dropped * contextLength);
    if (name === "gpt2") expect(session.counters.tokensReread).toBeGreaterThan(0);
    using child = session.fork([0, 0, 2]);
    const again = child.generate(sampling, keysOf(3, 1));
    [0, 0, 2].forEach((row, at) =>
      expect(again.ids[at]).toEqual(
        referenceGenerate(golden.model, golden.tokenizer, context[row]!, sampling, keysOf(3, 1)[at]!).ids,
      ),
    );
    expect(messages).toHaveLength(1);
    expect(messages[0]).toContain(`window of ${contextLength} tokens`);
  });

  it("truncates after the pinned ids in every method", () => {
    const { contextLength } = golden.model.config;
    const given = prompts([contextLength + 30, contextLength - 3, 4, 2]);
    const pinned = [1, 3, 1, 5];
    const cut = (ids: readonly number[], row: number, length: number) =>
      ids.length <= length
        ? [...ids]
        : [...ids.slice(0, pinned[row]), ...ids.slice(ids.length - length + pinned[row]!)];
    using session = open(given, { pinned });
    const sampling: Sampling = { maxNewTokens: 10, topK: 30 };
    const spoken = session.generate(sampling, keysOf(4));
    const context = given.map((prompt, row) => {
      const expected = referenceGenerate(
        golden.model,
        golden.tokenizer,
        cut(prompt, row, contextLength - 10),
        sampling,
        keysOf(4)[row]!,
      );
      expect(spoken.ids[row]).toEqual(expected.ids);
      return expected.row;
    });
    const heard = prompts([6, 1, 5, 2]);
    const expected = heard.map((tokens, row) => {
      context[row] = cut([...context[row]!, ...tokens], row, contextLength);
      return referenceLogprobs(golden.model, context[row]!.slice(0, -tokens.length), tokens);
    });
    expectClose(session.read(heard), expected);
    expect(session.rows()).toEqual(context);
    context
      .slice(0, 2)
      .forEach((ids, row) => expect(ids.slice(0, pinned[row])).toEqual(given[row]!.slice(0, pinned[row])));
    // Forks keep their pinned ids, and rows that were shorter than the pinned number do not pin later ids.
    using child = session.fork([0, 3]);
    const more = prompts([contextLength - 4, contextLength - 4]);
    expectClose(
      child.read(more),
      [0, 3].map((row, at) => {
        const kept = Math.min(pinned[row]!, given[row]!.length);
        const context_ = [
          ...context[row]!.slice(0, kept),
          ...context[row]!.slice(context[row]!.length - 4 + kept),
        ];
        return referenceLogprobs(golden.model, context_, more[at]!);
      }),
    );
  });

  it("refuses texts that leave no room for the pinned ids", () => {
    const { contextLength } = golden.model.config;
    const [long] = prompts([contextLength + 4]) as [number[]];
    using session = open([long], { pinned: 5 });
    expect(() => session.generate({ maxNewTokens: contextLength - 4 })).toThrow(
      breaking("no-room-for-context", "sampling.maxNewTokens"),
    );
    expect(() => session.read(prompts([contextLength - 4]))).toThrow(breaking("exceeds-window", "5"));
    expect(session.read(prompts([contextLength - 5]))[0]).toHaveLength(contextLength - 5);
    expect(session.rows()[0]!.slice(0, 5)).toEqual(long.slice(0, 5));
    expect(() => open([long], { pinned: contextLength })).toThrow(breaking("out-of-range", "pinned"));
    expect(() => open([long], { pinned: -1 })).toThrow(breaking("out-of-range", "pinned"));
    expect(() => open([long], { pinned: [1, 1] })).toThrow(breaking("length-mismatch", "pinned"));
  });

  it("rewritten, generates the same as a fresh session, and prefills only what is new", () => {
    const given = prompts([8, 5, 6, 7, 3, 9]);
    using session = open(given);
    const sampling: Sampling = { maxNewTokens: 6, topK: 40, recordBehaviour: true };
    const spoken = session.generate(sampling, keysOf(6));
    const ids = session.rows();
    const [random] = prompts([20]) as [number[]];
    const other = (id: number) => (id === 1 ? 2 : 1);
    const texts = [
      ids[0]!, // as it was
      [...ids[1]!.slice(0, 5), other(ids[1]![5] ?? 1), ...random.slice(0, 3)], // another utterance
      ids[2]!.slice(0, 6), // without its utterance
      [...ids[3]!.slice(0, 2), other(ids[3]![2]!), ...ids[3]!.slice(3)], // edited in front
      [other(ids[4]![0]!), ...random], // another text
      [...ids[5]!, ...random.slice(0, 4)], // longer
    ];
    const common = [ids[0]!.length, 5, 5, 2, 0, ids[5]!.length];
    const { tokensRead, tokensForwarded, tokensReread } = session.counters;
    const before = { tokensRead, tokensForwarded, tokensReread };
    session.rewrite(texts);
    expect(session.rows()).toEqual(texts);
    expect(session.counters).toMatchObject(before);
    using fresh = open(texts);
    const heard = prompts([2, 1, 3, 1, 0, 2]);
    expectClose(session.read(heard), fresh.read(heard));
    expect(session.rows()).toEqual(fresh.rows());
    const forwarded = texts.map((text, row) => {
      // The last sampled id has not been processed yet; the cache of the others is kept.
      const spokenIds = spoken.kept[row]!;
      const wasCached = ids[row]!.length - (spoken.ids[row]!.length === 6 && spokenIds === 6 ? 1 : 0);
      return text.length - Math.min(common[row]!, wasCached) + heard[row]!.length;
    });
    const done = session.counters.tokensForwarded - before.tokensForwarded;
    expect(done).toBe(forwarded.reduce((sum, count) => sum + count, 0));
    // Only the row that became shorter processes an id again: its last one.
    expect(session.counters.tokensReread - before.tokensReread).toBe(1);
    const said = session.generate(sampling, keysOf(6, 1));
    expectSame(said, fresh.generate(sampling, keysOf(6, 1)));
    using child = session.fork([5, 1, 1, 4]);
    using freshChild = fresh.fork([5, 1, 1, 4]);
    expectSame(child.generate(sampling, keysOf(4, 2)), freshChild.generate(sampling, keysOf(4, 2)));
  });

  it("rewritten, computes exactly the numbers of a fresh session in float64", () => {
    const exact = golden.model.copy("float64");
    const [old, heard, ending] = [
      prompts([9, 4, 6]),
      prompts([3, 2, 5]),
      randomIds(3, golden.model.config.vocabSize),
    ];
    const texts = [[...old[0]!.slice(0, 6), ...ending], [...old[1]!, ...ending], old[2]!.slice(0, 2)];
    using session = GenerationSession.open(exact, golden.tokenizer, old);
    session.read(heard);
    session.rewrite(texts);
    using fresh = GenerationSession.open(exact, golden.tokenizer, texts);
    expectClose(session.read(heard), fresh.read(heard), 2e-6);
    exact.dispose();
  });

  it("rewritten repeatedly, with forks in between and with or without enough memory, always generates the same as a fresh session", () => {
    for (const options of [{}, { cacheBudget: 1 }, { tokenBudget: 9 }]) {
      const alphabet = randomIds(3, golden.model.config.vocabSize);
      const text = (length: number) => Array.from({ length }, () => alphabet[stream.integer(3)]!);
      let texts = [4, 7, 1, 5].map(text);
      let session = open(texts, options);
      for (let turn = 0; turn < 6; turn += 1) {
        texts = session.rows().map((ids) => {
          const kept = stream.integer(ids.length + 1);
          return [...ids.slice(0, kept), ...text(stream.integer(5) + (kept === 0 ? 1 : 0))];
        });
        session.rewrite(texts);
        if (turn % 3 === 1) {
          const next = session.fork([3, 0, 0, 2]);
          texts = [3, 0, 0, 2].map((row) => texts[row]!);
          session.dispose();
          session = next;
        }
        if (turn % 2 === 0) continue; // two in a row
        const heard = [text(2), text(0), text(1), text(3)];
        expectClose(
          session.read(
            heard,
            turn % 4 === 1 ? {} : { score: heard.map(({ length }) => [[0, length]] as const) },
          ),
          heard.map((ids, row) => referenceLogprobs(golden.model, texts[row]!, ids)),
        );
        texts = texts.map((ids, row) => [...ids, ...heard[row]!]);
        const sampling: Sampling = { maxNewTokens: 2, topK: 20 };
        const keys = keysOf(4, turn);
        const spoken = session.generate(sampling, keys);
        texts.forEach((ids, row) =>
          expect(spoken.ids[row]).toEqual(
            referenceGenerate(golden.model, golden.tokenizer, ids, sampling, keys[row]!).ids,
          ),
        );
      }
      session.dispose();
    }
  });

  it("keeps the pinned ids of a rewritten row", () => {
    const { contextLength } = golden.model.config;
    const [first, second, third] = prompts([4, contextLength + 3, contextLength + 6]) as [
      number[],
      number[],
      number[],
    ];
    using session = open([first, first], { pinned: 2 });
    session.prefill();
    session.rewrite([second, third], { pinned: [2, 6] });
    const heard = prompts([1, 1]);
    session.read(heard);
    expect(session.rows()).toEqual([
      [...second.slice(0, 2), ...second.slice(6), ...heard[0]!],
      [...third.slice(0, 6), ...third.slice(13), ...heard[1]!],
    ]);
    session.rewrite([third, []]);
    session.read(heard);
    expect(session.rows()[0]).toEqual([...third.slice(0, 2), ...third.slice(9), ...heard[0]!]);
    expect(session.rows()[1]).toHaveLength(2);
    expect(() => session.rewrite([first])).toThrow(breaking("length-mismatch", "rewrite"));
    expect(() => session.rewrite([first, [-1]])).toThrow(breaking("invalid-token-id", "rewrite: row 1"));
  });

  it("with reserved room prefills a full window only once", () => {
    const { contextLength } = golden.model.config;
    const given = prompts([contextLength + 5, contextLength + 40]);
    using session = open(given, { reserve: 8 });
    using child = session.fork([0, 0, 1, 1]);
    child.generate({ maxNewTokens: 8 }, keysOf(4));
    expect(session.counters).toMatchObject({ tokensRead: 2 * (contextLength - 8), tokensReread: 0 });
    expect(child.counters).toMatchObject({ tokensRead: 0, tokensReread: 0 });
  });
});
