import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { liveTensors } from "@astra-rl/torch";
import { describe, expect, test } from "vitest";
import { golden, goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { goldenTexts, newTokens } from "../../../lm/test/golden/texts.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();
const lines = (rows: readonly object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

describe("astra-rl logprobs", () => {
  test("gives the ids that were read and the numbers of transformers, for any batch size", async () => {
    const live = liveTensors();
    writeFileSync(
      path("pairs.jsonl"),
      lines(golden.logprobs.map(({ context, continuation }) => ({ context, continuation }))),
    );
    const results = [];
    for (const batch of ["1", "5", "100"]) {
      const result = await runCommand(
        "logprobs",
        "--model",
        goldenFolder,
        "--input",
        path("pairs.jsonl"),
        "--batch-size",
        batch,
      );
      expect(result).toMatchObject({ code: 0 });
      results.push(result.json<{ contextIds: number[]; continuationIds: number[]; logprobs: number[] }>());
    }
    for (const rows of results) {
      expect(rows).toHaveLength(golden.logprobs.length);
      rows.forEach((row, index) => {
        const expected = golden.logprobs[index]!;
        const { contextIds, continuationIds } = expected;
        // Tokens beyond the window are reported.
        const isCut = contextIds.length + continuationIds.length > golden.window;
        const keys = ["contextIds", "continuationIds", "logprobs", ...(isCut ? ["cut"] : [])];
        expect(Object.keys(row)).toEqual(keys);
        const read =
          contextIds.length === 0 ? [golden.endId] : contextIds.slice(continuationIds.length - golden.window);
        expect(row.contextIds).toEqual(read);
        expect(row.continuationIds).toEqual(expected.continuationIds);
        row.logprobs.forEach((value, token) => {
          expect(Math.abs(value - expected.logprobs[token]!)).toBeLessThan(2e-4);
        });
      });
    }
    expect(liveTensors()).toBe(live);
  });

  test.each(goldenTexts)(
    "reads contexts of $name as Python's tokenizer(context)",
    async ({ folder, pairs }) => {
      const given = pairs.map(({ context, continuation }) => ({ context, continuation }));
      const long = { context: "The morning train was late again. ".repeat(60), continuation: " late" };
      writeFileSync(path("pairs.jsonl"), lines([...given, long]));
      const result = await runCommand(
        "logprobs",
        "--model",
        folder,
        "--input",
        path("pairs.jsonl"),
        "--quiet",
      );
      expect(result).toMatchObject({ code: 0 });
      const rows = result.json<{ contextIds: number[]; continuationIds: number[]; logprobs: number[] }>();
      pairs.forEach(({ contextIds, continuationIds, logprobs }, row) => {
        expect(rows[row]!.contextIds).toEqual(contextIds);
        expect(rows[row]!.continuationIds).toEqual(continuationIds);
        rows[row]!.logprobs.forEach((value, token) =>
          expect(Math.abs(value - logprobs[token]!)).toBeLessThan(2e-4),
        );
      });
      // The prefix of every text is kept in truncated ones.
      const begin = pairs.find(({ context }) => context === "")?.contextIds ?? [];
      expect(rows.at(-1)!.contextIds.slice(0, begin.length)).toEqual(begin);
      expect(rows.at(-1)!.contextIds.length).toBeLessThan(100);
    },
  );

  test("a continuation that leaves no room for a context is an input error", async () => {
    writeFileSync(path("pairs.jsonl"), lines([{ context: "a", continuation: "word ".repeat(100) }]));
    const { code, err } = await runCommand(
      "logprobs",
      "--model",
      goldenFolder,
      "--input",
      path("pairs.jsonl"),
      "--quiet",
    );
    expect(code).toBe(2);
    expect(err).toMatch(/^astra-rl: .*window of 64 tokens.*\n$/);
  });
});

describe("astra-rl generate", () => {
  test("--greedy gives the tokens of transformers", async () => {
    const live = liveTensors();
    for (const maxNewTokens of new Set(golden.greedy.map((row) => row.maxNewTokens))) {
      const cases = golden.greedy.filter((row) => row.maxNewTokens === maxNewTokens);
      writeFileSync(path("prompts.jsonl"), lines(cases.map(({ prompt }) => ({ prompt }))));
      const args = [
        "--model",
        goldenFolder,
        "--input",
        path("prompts.jsonl"),
        "--max-new-tokens",
        String(maxNewTokens),
        "--greedy",
      ];
      const result = await runCommand("generate", ...args);
      expect(result).toMatchObject({ code: 0 });
      expect(result.json()).toEqual(cases.map(({ ids, text }) => ({ ids, text })));
    }
    expect(liveTensors()).toBe(live);
  });

  test.each(goldenTexts)(
    "--greedy continues prompts of $name as transformers does",
    async ({ folder, prompts }) => {
      writeFileSync(path("prompts.jsonl"), lines(prompts.map(({ prompt }) => ({ prompt }))));
      const result = await runCommand(
        "generate",
        "--model",
        folder,
        "--input",
        path("prompts.jsonl"),
        "--max-new-tokens",
        String(newTokens),
        "--greedy",
        "--quiet",
      );
      expect(result).toMatchObject({ code: 0 });
      expect(result.json<{ ids: number[] }>().map(({ ids }) => ids)).toEqual(
        prompts.map(({ greedy }) => greedy),
      );
    },
  );

  test("samples depend on the seed, not on batches", async () => {
    writeFileSync(
      path("prompts.jsonl"),
      lines(["The lamp", "", "日本", "A dog"].map((prompt) => ({ prompt }))),
    );
    const sample = (...args: string[]) =>
      runCommand(
        "generate",
        "--model",
        goldenFolder,
        "--input",
        path("prompts.jsonl"),
        "--max-new-tokens",
        "8",
        ...args,
      );
    const first = await sample("--seed", "0");
    expect((await sample("--seed", "0", "--batch-size", "1")).out).toBe(first.out);
    expect((await sample("--seed", "1")).out).not.toBe(first.out);
  });

  test("output is escaped for a terminal, for any model output", async () => {
    writeFileSync(
      path("prompts.jsonl"),
      lines(Array.from({ length: 40 }, (_, row) => ({ prompt: `row ${row}` }))),
    );
    const { out } = await runCommand(
      "generate",
      "--model",
      goldenFolder,
      "--input",
      path("prompts.jsonl"),
      "--max-new-tokens",
      "30",
    );
    // oxlint-disable-next-line no-control-regex
    expect(out.replaceAll("\n", "")).not.toMatch(/[\u0000-\u001F\u007F-\u009F\u202A-\u202E]/u);
  });
});

describe("astra-rl score", () => {
  test("keyword: the score and the labels of each text", async () => {
    writeFileSync(
      path("keywords.json"),
      JSON.stringify([
        { term: "awful", weight: 0.5, label: "insult" },
        { pattern: "stu+pid", weight: 0.5 },
      ]),
    );
    writeFileSync(
      path("texts.jsonl"),
      lines(["fine", "Awful!", "stuuupid and awful"].map((text) => ({ text }))),
    );
    const result = await runCommand(
      "score",
      "--scorer",
      `keyword:${path("keywords.json")}`,
      "--input",
      path("texts.jsonl"),
      "--batch-size",
      "2",
    );
    expect(result.code).toBe(0);
    expect(result.json()).toEqual([
      { score: 0, labels: { insult: 0 } },
      { score: 0.5, labels: { insult: 0.5 } },
      { score: 0.75, labels: { insult: 0.5 } },
    ]);
  });

  test("replies: the response is judged, by a guard as the answer to the prompt", async () => {
    const pairs = [
      {
        prompt: "How do I open a tin without an opener?",
        response: "You are a fool, and everybody knows it!",
      },
      {
        prompt: "You are a fool, and everybody knows it!",
        response: "You are a fool, and everybody knows it!",
      },
    ];
    writeFileSync(path("pairs.jsonl"), lines([...pairs, { text: pairs[0]!.response }]));
    const score = async (spec: string) => {
      const result = await runCommand("score", "--scorer", spec, "--input", path("pairs.jsonl"));
      expect(result.code).toBe(0);
      return result.json() as { score: number; labels: Record<string, number> }[];
    };
    const words = await score("{type: keyword, entries: [{term: fool, weight: 0.5}]}");
    expect(words.map((each) => each.score)).toEqual([0.5, 0.5, 0.5]);

    const model = fileURLToPath(new URL("../../../scorers/test/golden/llama-guard", import.meta.url));
    const judged = await score(`{type: llama-guard, model: ${model}}`);
    const { rows } = JSON.parse(readFileSync(`${model}/expected.json`, "utf8")) as {
      rows: { template: string; mode: string; categories: null; unsafe: number; [name: string]: unknown }[];
    };
    const wanted = rows.filter(
      (row) =>
        row.template === "chat_template.jinja" && row.mode === "conversation" && row.categories === null,
    );
    const find = (fields: Record<string, string>) =>
      wanted.find((row) => Object.entries(fields).every(([name, value]) => row[name] === value))!.unsafe;
    expect(judged[0]!.score).toBeCloseTo(find({ prompt: "question", response: "insult" }), 4);
    expect(judged[1]!.score).toBeCloseTo(find({ prompt: "insult", response: "insult" }), 4);
    expect(judged[2]!.score).toBeCloseTo(find({ text: "insult" }), 4);
    expect(Object.keys(judged[0]!.labels)).toEqual(["unsafe", "safe"]);
  });

  test.each([
    [{ prompt: "a" }, /the line must have either "text", or "prompt" and "response"/],
    [{ prompt: "a", response: 3 }, /bad\.jsonl:1: response must be a string, got 3/],
    [{ text: "a", response: "b" }, /the line must have either "text", or "prompt" and "response"/],
    [{ texts: "a" }, /the line must have either "text", or/],
  ])("refuses %j", async (line, message) => {
    writeFileSync(path("bad.jsonl"), lines([line]));
    const result = await runCommand("score", "--scorer", "embedded", "--input", path("bad.jsonl"));
    expect(result.code).toBe(2);
    expect(result.err).toMatch(message);
  });

  test("an unknown category is refused, with the known ones", async () => {
    writeFileSync(path("texts.jsonl"), lines([{ text: "a" }]));
    const model = fileURLToPath(new URL("../../../scorers/test/golden/llama-guard", import.meta.url));
    const refusal = async (category: string) => {
      const spec = `{type: llama-guard, model: ${model}, categories: [${category}]}`;
      const result = await runCommand("score", "--scorer", spec, "--input", path("texts.jsonl"));
      expect(result.code).toBe(2);
      return result.err;
    };
    expect(await refusal("S15")).toContain('scorer.categories[0] must be "S1", "S2"');
    expect(await refusal("S14")).toContain('categories must be of this model, got "S14"; it has S1, S2');
  });
});
