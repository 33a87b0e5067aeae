import { copyFileSync, cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Tokenizer } from "@astra-rl/lm";
import { liveTensors } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Exchange } from "@astra-rl/method";
import { breaking } from "../../base/test/support/breaking.js";
import { GuardPrompt } from "../src/language-models/llama-guard-prompt.js";
import { LlamaGuardScorer, type LlamaGuardOptions } from "../src/index.js";
import { temporaryFolder } from "../../method/test/training/temporary-folder.js";

// Made by test/golden/make_llama_guard.py.
const PARTS = fileURLToPath(new URL("golden/llama-guard", import.meta.url));
interface Row {
  template: string;
  categories: string[] | null;
  mode: "conversation" | "toolbox";
  text?: string;
  prompt?: string;
  response?: string;
  unsafe: number;
  /** Of each message, after it was made to fit. */
  characters?: number[];
}
const { texts, rows } = JSON.parse(readFileSync(join(PARTS, "expected.json"), "utf8")) as {
  texts: Record<string, string>;
  rows: Row[];
};

/** The checkpoint with the other kind of template. */
let fixed: string;
beforeAll(() => {
  fixed = join(temporaryFolder(), "guard");
  cpSync(PARTS, fixed, { recursive: true });
  copyFileSync(join(PARTS, "fixed_template.jinja"), join(fixed, "chat_template.jinja"));
});
const folderOf = (template: string) => (template === "chat_template.jinja" ? PARTS : fixed);

const before = liveTensors();
const loaded: LlamaGuardScorer[] = [];
async function guard(folder: string, options?: LlamaGuardOptions): Promise<LlamaGuardScorer> {
  const scorer = await LlamaGuardScorer.load(folder, options);
  loaded.push(scorer);
  return scorer;
}
afterEach(() => {
  for (const scorer of loaded.splice(0)) scorer.dispose();
  expect(liveTensors()).toBe(before);
});

const groups = new Map<string, Row[]>();
for (const row of rows) {
  const key = `${row.template}, ${row.mode}, ${row.categories?.join(" ") ?? "all categories"}`;
  groups.set(key, [...(groups.get(key) ?? []), row]);
}

describe("agrees with transformers, in batches of mixed lengths and with texts that are too long", () => {
  test.each([...groups])("%s", async (_, group) => {
    const { template, mode, categories } = group[0]!;
    const scorer = await guard(folderOf(template), { mode, ...(categories === null ? {} : { categories }) });
    const items = group.map(({ text, prompt, response }) =>
      text !== undefined ? texts[text]! : { prompt: texts[prompt!]!, response: texts[response!]! },
    );
    const outcomes = await scorer.scoreAndValidate(items);
    for (const [index, { unsafe }] of group.entries()) {
      const { score, labels } = outcomes[index]!;
      expect(Math.abs(score! - unsafe), JSON.stringify(group[index])).toBeLessThan(1e-4);
      expect(labels).toEqual({ unsafe: score, safe: 1 - score! });
    }
  });
});

test("a prompt without a response is what the user says", async () => {
  const scorer = await guard(PARTS);
  const exchanges: Exchange[] = Object.values(texts).map((prompt) => ({ prompt, response: null }));
  const expected = rows.filter(
    ({ template, mode, text, categories }) =>
      template === "chat_template.jinja" && mode === "conversation" && text !== undefined && !categories,
  );
  const scores = (await scorer.scoreExchanges(exchanges)).map(({ score }) => score!);
  for (const [index, { unsafe }] of expected.entries()) expect(scores[index]).toBeCloseTo(unsafe, 4);
});

test("gives the same scores one at a time, all at once and in any batch", async () => {
  const exchanges = rows
    .filter(({ prompt, categories, template }) => prompt && !categories && template === "chat_template.jinja")
    .map(({ prompt, response }) => ({ prompt: texts[prompt!]!, response: texts[response!]! }));
  const one = await guard(PARTS, { batchSize: 1 });
  const all = await guard(PARTS, { batchSize: 64 });
  const alone = (await one.scoreExchanges(exchanges)).map(({ score }) => score!);
  const together = (await all.scoreExchanges([...exchanges].reverse())).map(({ score }) => score!).reverse();
  for (const [index, score] of alone.entries()) expect(together[index]).toBeCloseTo(score, 5);
  expect(new Set(alone.map((score) => score.toFixed(4))).size).toBeGreaterThan(5);
});

test("ignores the prompt in toolbox mode, and scores equal responses once", async () => {
  const scorer = await guard(PARTS, { mode: "toolbox" });
  expect(scorer.keepsRoles).toBe(false);
  const [a, b] = await scorer.scoreAndValidate([
    { prompt: "x", response: texts["insult"]! },
    { prompt: "y", response: texts["insult"]! },
  ]);
  expect(a).toBe(b);
  const roles = await guard(PARTS);
  const [c, d] = await roles.scoreAndValidate([
    { prompt: "x", response: texts["insult"]! },
    { prompt: "y", response: texts["insult"]! },
  ]);
  expect(Math.abs(c!.score! - d!.score!)).toBeGreaterThan(1e-4);
});

describe("its prompt", () => {
  const promptOf = async (folder: string, categories?: string[]) =>
    GuardPrompt.of(await Tokenizer.load(folder), { where: folder, ...(categories && { categories }) });
  const keys = (count: number) => Array.from({ length: count }, (_, index) => `S${index + 1}`);

  test("takes categories from the template, and keeps only the selected ones in the text", async () => {
    expect((await promptOf(PARTS)).categories).toEqual(keys(13));
    expect((await promptOf(fixed)).categories).toEqual(keys(14));
    for (const folder of [PARTS, fixed]) {
      const prompt = await promptOf(folder, ["S10", "S2"]);
      const said =
        "S3: Lies.\n<BEGIN UNSAFE CONTENT CATEGORIES>\nS4: Traps.\n<END UNSAFE CONTENT CATEGORIES>";
      const text = prompt.render([{ role: "user", content: said }]);
      expect(text).toContain(
        "<BEGIN UNSAFE CONTENT CATEGORIES>\nS2: Theft.\nS10: Scorn.\n<END UNSAFE CONTENT CATEGORIES>\n\n<BEGIN CONVERSATION>",
      );
      expect(text).toContain(`User: ${said}`);
      expect(text.endsWith("<|end_header_id|>\n\n")).toBe(true);
      expect(text.endsWith("\n\n\n\n")).toBe(false);
    }
  });

  test("looks up the tokens of the verdict", async () => {
    const tokenizer = await Tokenizer.load(PARTS);
    const prompt = await promptOf(PARTS);
    expect([prompt.unsafeId, prompt.safeId]).toEqual([tokenizer.idOf("unsafe"), tokenizer.idOf("safe")]);
  });

  test("truncates as few characters as possible: the start of the prompt, then the end of the judged text", async () => {
    const tokenizer = await Tokenizer.load(PARTS);
    for (const row of rows.filter(({ characters }) => characters !== undefined)) {
      const prompt = await promptOf(folderOf(row.template), row.categories ?? undefined);
      const said = row.characters!;
      const whole =
        row.prompt !== undefined
          ? [texts[row.prompt]!, texts[row.response!]!]
          : row.mode === "toolbox"
            ? ["Hello!", texts[row.text!]!]
            : [texts[row.text!]!];
      const { ids: fits, isCut } = prompt.encode(
        whole.map((content, at) => ({
          role: at === 0 ? ("user" as const) : ("assistant" as const),
          content,
          ...(content === "Hello!"
            ? {}
            : { cut: at === 0 && whole.length > 1 ? ("start" as const) : ("end" as const) }),
        })),
        447,
      );
      const cut = whole.map((content, at) => {
        const characters = Array.from(content);
        const kept =
          at === 0 && whole.length > 1
            ? characters.slice(characters.length - said[at]!)
            : characters.slice(0, said[at]);
        return { role: at === 0 ? ("user" as const) : ("assistant" as const), content: kept.join("") };
      });
      expect(fits, JSON.stringify(row)).toEqual(tokenizer.encode(prompt.render(cut)));
      expect(fits.length).toBeLessThanOrEqual(447);
      expect(isCut).toBe(cut.some(({ content }, at) => content !== whole[at]));
    }
  });

  test("a template that does not fit the window is refused", async () => {
    const prompt = await promptOf(PARTS);
    expect(() => prompt.encode([{ role: "user", content: "x", cut: "end" }], 20)).toThrow(
      breaking("template-exceeds-window", "20"),
    );
  });
});

describe("is refused before the weights are read", () => {
  let broken: string;
  beforeAll(() => {
    broken = join(temporaryFolder(), "guard");
    cpSync(PARTS, broken, { recursive: true });
    // Reading them would throw.
    writeFileSync(join(broken, "model.safetensors"), "no weights");
  });
  afterAll(() => rmSync(broken, { recursive: true }));

  const mistake = async (options?: LlamaGuardOptions): Promise<string> => {
    const error: unknown = await LlamaGuardScorer.load(broken, options).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(UsageError);
    return (error as Error).message;
  };

  test("an unknown category", async () => {
    expect(await mistake({ categories: ["S1", "S14"] })).toBe(
      `${broken}: categories must be of this model, got "S14"; it has S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13`,
    );
    expect(await mistake({ categories: [] })).toContain("categories must not be empty");
    expect(await mistake()).toContain("model.safetensors");
  });

  test.each([
    ["{{ 'hello' }}", /the chat template must include the messages of user and assistant, but omits them/u],
    ["{{ raise_exception('no') }}", /the template refuses this conversation: .*no/u],
    [
      "{% for message in messages %}{{ message['content'] }}{% endfor %}",
      /categories must be of this model, got "S1"; its chat template lists none/u,
    ],
  ])("a template of another model: %s", async (template, message) => {
    writeFileSync(join(broken, "chat_template.jinja"), template);
    expect(await mistake({ categories: ["S1"] })).toMatch(message);
  });

  test("a checkpoint without a template", async () => {
    rmSync(join(broken, "chat_template.jinja"));
    expect(await mistake()).toContain("a guard model requires its chat template, but there is none");
  });
});
