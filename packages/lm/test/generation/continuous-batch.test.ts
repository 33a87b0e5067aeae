import { memoryAllocated } from "@astra-rl/torch";
import { describe, expect, it, vi } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import {
  ContinuousBatch,
  type Continuation,
  type ContinuationRequest,
  type ContinuousBatchOptions,
  type Sampling,
  type ScoredToken,
} from "../../src/index.js";
import { KeyValueCache } from "../../src/generation/key-value-cache.js";
import { logSoftmax, referenceGenerate, referenceLogits, referenceLogprobs } from "../reference-decoding.js";
import { goldenModels, keysOf, stream, useGolden } from "./session-setup.js";

interface Told {
  continuation: Continuation | null;
  error: Error | null;
  read: ScoredToken[];
  sampled: ScoredToken[];
  cancel: () => void;
}

describe.each(goldenModels)("a continuous batch over the golden %s", (_, folder) => {
  const golden = useGolden(folder);
  const { prompts } = golden;

  /** A batch for one test, and the callbacks that each text received. */
  function started(options: ContinuousBatchOptions = {}) {
    const batch = new ContinuousBatch(golden.model, golden.tokenizer, options);
    const submit = (
      ids: readonly number[],
      sampling: Sampling | null,
      more: Partial<ContinuationRequest> & { scores?: boolean } = {},
    ): Told => {
      const told: Told = { continuation: null, error: null, read: [], sampled: [], cancel: () => {} };
      const { scores = false, ...rest } = more;
      told.cancel = batch.submit({
        ids,
        sampling,
        ...rest,
        ...(scores ? { onRead: (token) => told.read.push(token) } : {}),
        onToken: (token) => {
          told.sampled.push(token);
          rest.onToken?.(token);
        },
        onFinish: (continuation) => (told.continuation = continuation),
        onError: (error) => {
          told.error = error;
          rest.onError?.(error);
        },
      });
      return told;
    };
    const finish = () => {
      let steps = 1;
      while (batch.step()) steps += 1;
      return steps;
    };
    return { batch, submit, finish };
  }

  const samplings: [string, Sampling][] = [
    ["plain", { maxNewTokens: 7 }],
    ["greedy", { maxNewTokens: 7, greedy: true }],
    ["top-k, top-p", { maxNewTokens: 5, topK: 20, topP: 0.9, temperature: 1.3 }],
    ["penalty", { maxNewTokens: 9, topP: 0.8, repetitionPenalty: 1.3, minNewTokens: 4 }],
  ];

  it("gives each text the same result as alone while others come and go", () => {
    const { batch, submit, finish } = started({ rows: 4, tokensPerStep: 6 });
    const keys = keysOf(24);
    const cases = prompts(Array.from({ length: 24 }, () => 1 + stream.integer(20))).map((ids, at) => ({
      ids,
      sampling: samplings[at % samplings.length]![1],
      key: keys[at]!,
    }));
    const told = cases.map(({ ids, sampling, key }) => {
      // Some texts arrive while others are in progress.
      for (let steps = stream.integer(3); steps > 0; steps -= 1) batch.step();
      return submit(ids, sampling, { key, topLogprobs: 3 });
    });
    finish();
    for (const [at, { ids, sampling, key }] of cases.entries()) {
      const expected = referenceGenerate(golden.model, golden.tokenizer, ids, sampling, key);
      const { continuation, sampled } = told[at]!;
      expect(continuation!.ids).toEqual(expected.ids);
      expect(sampled.map(({ id }) => id)).toEqual(expected.ids);
      sampled.forEach(({ logprob }, token) => expect(logprob).toBeCloseTo(expected.logprobs[token]!, 4));
    }
    expect(batch.running + batch.waiting).toBe(0);
    batch.dispose();
  });

  it("reuses prefixes of rows that are finished, generating or prefilling, and prefills nothing twice", () => {
    const { batch, submit, finish } = started({ rows: 3, tokensPerStep: 8 });
    const [shared, a, b] = prompts([20, 5, 6]) as [number[], number[], number[]];
    const sampling = { maxNewTokens: 6, greedy: true };
    const told = [shared, [...shared, ...a], [...shared, ...b], [...shared, ...a]].map((ids) =>
      submit(ids, sampling),
    );
    finish();
    told.push(submit([...shared, ...a, ...told[1]!.continuation!.ids.slice(0, 4), 3], sampling));
    finish();
    const texts = [shared, [...shared, ...a], [...shared, ...b], [...shared, ...a]];
    for (const [at, ids] of texts.entries()) {
      expect(told[at]!.continuation!.ids).toEqual(
        referenceGenerate(golden.model, golden.tokenizer, ids, sampling, null).ids,
      );
    }
    expect(told.map(({ continuation }) => continuation!.reused)).toEqual([0, 20, 20, 24, 29]);
    expect(batch.tokensReused).toBe(93);
    expect(batch.work.tokensRead).toBe(20 + 5 + 6 + 1 + 1);
    batch.dispose();
  });

  it("scores a text according to the definition, with the likeliest tokens at each position", () => {
    const { batch, submit, finish } = started({ tokensPerStep: 4 });
    const [text, other, one] = prompts([19, 15, 1]) as [number[], number[], number[]];
    submit(other, { maxNewTokens: 8, greedy: true });
    const told = submit(text, { maxNewTokens: 2, greedy: true }, { topLogprobs: 4, scores: true });
    const only = submit(text, null, { topLogprobs: 0, scores: true });
    const single = submit(one, null, { topLogprobs: 1, scores: true });
    finish();
    const expected = referenceLogprobs(golden.model, text.slice(0, 1), text.slice(1));
    for (const { read } of [told, only]) {
      expect(read.map(({ id }) => id)).toEqual(text);
      expect(read[0]!.logprob).toBeNull();
      read.slice(1).forEach(({ logprob }, at) => expect(logprob).toBeCloseTo(expected[at]!, 4));
    }
    const tables = referenceLogits(golden.model, text).map(logSoftmax);
    told.read.slice(1).forEach(({ id, logprob, top }, at) => {
      const ranked = tables[at]!.map((value, token) => [token, value] as const).sort((x, y) => y[1] - x[1]);
      top.forEach((each, rank) => expect(each.logprob).toBeCloseTo(ranked[rank]![1], 4));
      // A sampled token that is among the likeliest has exactly the value in the list.
      const same = top.find((each) => each.id === id);
      if (same !== undefined) expect(same.logprob).toBe(logprob);
    });
    expect(only.continuation).toMatchObject({ ids: [], text: "", finished: null });
    expect(only.read.every(({ top }) => top.length === 0)).toBe(true);
    expect(single.read).toEqual([{ id: one[0], logprob: null, top: [] }]);
    batch.dispose();
  });

  it("samples a short text's first token in its first step while fifteen long ones are prefilled in chunks", () => {
    const { batch, submit } = started({ tokensPerStep: 256 });
    const long = prompts(Array.from({ length: 15 }, () => 48));
    const slow = long.map((ids) => submit(ids, { maxNewTokens: 2, greedy: true }));
    batch.step();
    const fast = submit(prompts([4])[0]!, { maxNewTokens: 2, greedy: true });
    batch.step();
    expect([fast.sampled.length, ...slow.map(({ sampled }) => sampled.length)]).toEqual([
      1,
      ...slow.map(() => 0),
    ]);
    batch.step();
    expect(fast.continuation).not.toBeNull();
    batch.dispose();
  });

  it("keeps consistent state while texts come, go and fail", () => {
    const { batch, submit, finish } = started({ rows: 3, tokensPerStep: 8 });
    const told: Told[] = [];
    const base = prompts([12])[0]!;
    for (let round = 0; round < 200; round += 1) {
      const what = stream.integer(5);
      if (what < 2) {
        const own = golden.randomIds(stream.integer(6) + 1, golden.model.config.vocabSize);
        const ids = stream.integer(2) === 0 ? [...base.slice(0, 4 + stream.integer(8)), ...own] : own;
        told.push(
          submit(
            ids,
            { maxNewTokens: 1 + stream.integer(6), greedy: true },
            { scores: stream.integer(4) === 0, topLogprobs: 1 },
          ),
        );
      } else if (what === 2 && told.length > 0) told[stream.integer(told.length)]!.cancel();
      else batch.step();
      expect(batch.running).toBeLessThanOrEqual(3);
    }
    finish();
    expect([batch.running, batch.waiting]).toEqual([0, 0]);
    expect(told.every(({ error }) => error === null)).toBe(true);
    // Every finished text received all its callbacks.
    for (const { continuation, sampled } of told) {
      if (continuation !== null) expect(sampled.map(({ id }) => id)).toEqual(continuation.ids);
    }
    expect(told.filter(({ continuation }) => continuation !== null).length).toBeGreaterThan(20);
    batch.dispose();
  });

  it("drops a cancelled text, waiting or running, and reuses its row", () => {
    const { batch, submit, finish } = started({ rows: 1 });
    const [a, b, c] = prompts([4, 4, 4]) as [number[], number[], number[]];
    const sampling = { maxNewTokens: 8, greedy: true };
    const [first, second, third] = [submit(a, sampling), submit(b, sampling), submit(c, sampling)];
    batch.step();
    expect([batch.running, batch.waiting]).toEqual([1, 2]);
    first.cancel();
    second.cancel();
    first.cancel();
    finish();
    expect([first.continuation, second.continuation]).toEqual([null, null]);
    expect(first.sampled.length).toBe(1);
    expect(third.continuation!.ids.length).toBeGreaterThan(0);
    // A text cancelled in its own callback ends there.
    const own: Told[] = [];
    own.push(submit(a, sampling, { onToken: () => own[0]!.cancel() }));
    expect(finish()).toBe(1);
    batch.dispose();
  });

  it("stops at stop strings and additional end ids, and within the window that its memory allows", () => {
    const { batch, submit, finish } = started();
    const [text] = prompts([6]) as [number[]];
    const plain = referenceGenerate(
      golden.model,
      golden.tokenizer,
      text,
      { maxNewTokens: 8, greedy: true },
      null,
    );
    const whole = golden.tokenizer.decode(plain.ids, { skipSpecialTokens: true });
    const stop = whole.slice(whole.length >> 1, (whole.length >> 1) + 2);
    expect(stop.length).toBe(2);
    const stopped = submit(text, { maxNewTokens: 8, greedy: true, stopStrings: [stop] });
    const ended = submit(text, { maxNewTokens: 8, greedy: true }, { endIds: [plain.ids[1]!] });
    finish();
    expect(stopped.continuation!.finished).toBe("stop");
    expect(stopped.continuation!.text).not.toContain(stop);
    // Within tokens, the text before the stop string is kept.
    const inside = submit(
      text,
      { maxNewTokens: 8, greedy: true, stopStrings: [stop] },
      { stopsWithinTokens: true },
    );
    const keeping = submit(text, {
      maxNewTokens: 8,
      greedy: true,
      stopStrings: [stop],
      keepStopString: true,
    });
    finish();
    expect(inside.continuation!.text).toBe(whole.slice(0, whole.indexOf(stop)));
    const { ids } = keeping.continuation!;
    expect([ids, keeping.continuation!.text]).toEqual([
      plain.ids.slice(0, ids.length),
      golden.tokenizer.decode(plain.ids.slice(0, ids.length), { skipSpecialTokens: true }),
    ]);
    expect(keeping.continuation!.text).toContain(stop);
    const at = plain.ids.indexOf(plain.ids[1]!);
    expect(ended.continuation).toMatchObject({ finished: "eos", ids: plain.ids.slice(0, at + 1) });
    batch.dispose();

    const { layers, keyValueHeads, headDimension } = golden.model.config;
    const tight = started({ rows: 2, cacheBytes: 2 * 20 * 2 * layers * keyValueHeads * headDimension * 4 });
    expect(tight.batch.window).toBe(20);
    expect(() => tight.submit(prompts([15])[0]!, { maxNewTokens: 6, greedy: true })).toThrow(
      breaking("exceeds-window", "20"),
    );
    const before = memoryAllocated();
    tight.submit(prompts([14])[0]!, { maxNewTokens: 6, greedy: true });
    tight.finish();
    // Columns are allocated in multiples of 16.
    expect(tight.batch.cacheBytes).toBeLessThanOrEqual(
      (32 / 20) * 2 * 20 * 2 * layers * keyValueHeads * headDimension * 4,
    );
    expect(memoryAllocated() - before).toBeGreaterThanOrEqual(0);
    tight.batch.dispose();
    expect(() => new ContinuousBatch(golden.model, golden.tokenizer, { cacheBytes: 100 })).toThrow(
      breaking("cache-too-small"),
    );
  });

  it("a text cancelled in another's callback gets no further calls", () => {
    const { batch, submit, finish } = started({ rows: 4, tokensPerStep: 8 });
    const [a, b, long] = prompts([4, 4, 24]) as [number[], number[], number[]];
    const sampling = { maxNewTokens: 8, greedy: true };
    const victims: Told[] = [];
    // The first one samples in a separate pass, before the long text is prefilled further.
    const killer = submit(a, sampling, {
      onToken: () => victims.forEach(({ cancel }) => cancel()),
    });
    victims.push(submit(long, sampling), submit(b, sampling));
    finish();
    for (const { continuation, error } of victims) expect([continuation, error]).toEqual([null, null]);
    expect(killer.continuation!.ids).toEqual(
      referenceGenerate(golden.model, golden.tokenizer, a, sampling, null).ids,
    );
    batch.dispose();
  });

  it("a failing pass fails its texts; the others are prefilled again and get the same results as alone", () => {
    const { batch, submit, finish } = started({ rows: 3, tokensPerStep: 4 });
    const [steady, broken] = prompts([5, 30]) as [number[], number[]];
    const sampling = { maxNewTokens: 6, greedy: true };
    const first = submit(steady, sampling);
    batch.step();
    batch.step();
    const second = submit(broken, sampling);
    // The second pass of a step prefills; it is made to fail once.
    const forward = golden.model.forward.bind(golden.model);
    let calls = 0;
    golden.model.forward = (...args) => {
      if ((calls += 1) === 2) throw new Error("out of memory");
      return forward(...args);
    };
    batch.step();
    golden.model.forward = forward;
    expect(second.error!.message).toBe("out of memory");
    finish();
    expect(first.error).toBeNull();
    expect(first.continuation!.ids).toEqual(
      referenceGenerate(golden.model, golden.tokenizer, steady, sampling, null).ids,
    );
    const third = submit(broken, sampling);
    finish();
    expect(third.continuation!.ids).toEqual(
      referenceGenerate(golden.model, golden.tokenizer, broken, sampling, null).ids,
    );
    batch.dispose();
  });

  it.each(["onToken", "onFinish", "onRead"] as const)("what %s throws ends its own text alone", (name) => {
    const { batch, submit, finish } = started({ rows: 4, tokensPerStep: 8 });
    const [a, b] = prompts([5, 6]) as [number[], number[]];
    const sampling = { maxNewTokens: 6, greedy: true };
    const throws = () => {
      throw new Error("no iterable");
    };
    const errors: Error[] = [];
    const steady = [submit(a, sampling), submit(b, sampling)];
    batch.step();
    batch.submit({
      ids: b,
      sampling,
      topLogprobs: 0,
      onFinish: () => {},
      onError: (error) => errors.push(error),
      [name]: throws,
    });
    steady.push(submit(b, sampling));
    finish();
    expect(errors.map(({ message }) => message)).toEqual(["no iterable"]);
    const alone = [a, b, b].map(
      (ids) => referenceGenerate(golden.model, golden.tokenizer, ids, sampling, null).ids,
    );
    expect(steady.map(({ continuation }) => continuation?.ids)).toEqual(alone);
    batch.dispose();
  });

  it("a text with non-finite logits fails alone", () => {
    const { batch, submit, finish } = started({ rows: 4 });
    const [a, b] = prompts([5, 6]) as [number[], number[]];
    const sampling = { maxNewTokens: 6, greedy: true };
    const told = [submit(a, sampling), submit(b, sampling)];
    batch.step();
    const logits = golden.model.logits.bind(golden.model);
    golden.model.logits = (states) => {
      const found = logits(states);
      found.narrow(0, 1, 1).fill_(NaN);
      golden.model.logits = logits;
      return found;
    };
    finish();
    expect([told[0]!.error, told[1]!.error?.message]).toEqual([
      null,
      expect.stringContaining("no finite logits"),
    ]);
    expect(told[0]!.continuation!.ids).toEqual(
      referenceGenerate(golden.model, golden.tokenizer, a, sampling, null).ids,
    );
    batch.dispose();
  });

  it("a failing copy within the cache fails its text; the others are prefilled again", () => {
    const { batch, submit, finish } = started({ rows: 3 });
    const [common] = prompts([20]) as [number[]];
    const sampling = { maxNewTokens: 6, greedy: true };
    const first = submit(common, sampling);
    batch.step();
    batch.step();
    const copyRow = vi.spyOn(KeyValueCache.prototype, "copyRow").mockImplementation(() => {
      throw new Error("out of memory");
    });
    // The second would be copied after the first, and is cancelled when that fails.
    const given = [...common, 1];
    const killer = submit(given, sampling, { onError: () => victim.cancel() });
    const victim = submit(given, sampling);
    const third = submit(prompts([4])[0]!, sampling);
    batch.step();
    expect(copyRow).toHaveBeenCalledTimes(1);
    copyRow.mockRestore();
    finish();
    expect(killer.error!.message).toBe("out of memory");
    expect([victim.continuation, victim.error]).toEqual([null, null]);
    expect(third.continuation!.ids).toHaveLength(6);
    expect(first.continuation!.ids).toEqual(
      referenceGenerate(golden.model, golden.tokenizer, common, sampling, null).ids,
    );
    batch.dispose();
  });

  it("refuses ids outside the vocabulary, sampling without a key, and lengths out of range", () => {
    const { batch, submit } = started();
    expect(() => submit([golden.model.config.vocabSize], null)).toThrow(breaking("invalid-token-id"));
    expect(() => submit([1], { maxNewTokens: 2 })).toThrow(breaking("missing-draw-key"));
    expect(() => submit([1], { maxNewTokens: 0, greedy: true })).toThrow(
      breaking("out-of-range", "maxNewTokens"),
    );
    expect(batch.waiting).toBe(0);
    batch.dispose();
  });
});
