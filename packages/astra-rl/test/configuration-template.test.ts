import "@astra-rl/contrib/kinds";
import { parseConfiguration, parseOverride } from "@astra-rl/assembly";
import { WIDE_TREES } from "@astra-rl/method";
import { describe, expect, test } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { configurationTemplate } from "../src/configuration-template.js";

const MINIMAL = "models:\n  tester: embedded:chatter\n  target: embedded:chatter\n";
const parse = (text: string, ...sets: string[]) =>
  parseConfiguration(text, "/runs/run.yaml", { overrides: sets.map(parseOverride) });

test("the template is a valid configuration with the defaults", async () => {
  const values = { ...WIDE_TREES, "models.tester": "embedded:chatter", "models.target": "embedded:chatter" };
  const text = configurationTemplate({ schema: "schema.json", values });
  expect(text.split("\n")[0]).toBe("# yaml-language-server: $schema=schema.json");
  expect(await parse(text)).toEqual(await parse(MINIMAL));
  // Every key stands in it, those without a default as a comment.
  for (const key of ["baseline", "responseWeight", "weightDecay", "betas", "evaluationRollouts"]) {
    expect(text).toMatch(new RegExp(`^ *# ${key}:`, "m"));
  }
  expect(text).toContain("; type: ipo (");
  expect(text).toContain("type: ./file.js#name or package#name (a custom implementation)");
  expect(text).toContain("  # Each is one of: type: cosine (weight, optional");
  expect(Math.max(...text.split("\n").map((line) => line.length))).toBeLessThanOrEqual(110);
});

describe("a section without a selected type in the template", () => {
  const values = { "models.tester": "embedded:chatter", "models.target": "embedded:chatter" };
  const kinds = ["detoxify", "llama-guard", "classifier", "keyword"];
  const text = configurationTemplate({ schema: "schema.json", values, open: { scorer: kinds } });

  test("is refused until a type is selected", async () => {
    await expect(parse(text)).rejects.toThrow(breaking("unknown-choice", "scorer.type"));
    await expect(parse(MINIMAL, "scorer={type: }")).rejects.toThrow(
      breaking("unknown-choice", "scorer.type"),
    );
  });

  test.each(kinds)("lists %s to be uncommented", async (kind) => {
    const block = text.slice(text.indexOf(`\n  # type: ${kind}\n`) + 1);
    const options = block.slice(0, block.indexOf("\n\n")).replaceAll(/^ {2}# /gmu, "  ");
    const filled = options
      .replace(/^ {2}model:$/mu, "  model: owner/name")
      .replace(/^ {2}# entries:$/mu, "  entries: [{term: a}]");
    const whole = text.replace("\nscorer:\n  type:\n", `\nscorer:\n${filled}\n`);
    expect((await parse(whole)).scorer).toEqual((await parse(MINIMAL + SCORERS[kind]!)).scorer);
  });
});

const SCORERS: Readonly<Record<string, string>> = {
  detoxify: "scorer: {type: detoxify}\n",
  "llama-guard": "scorer: {type: llama-guard, model: owner/name}\n",
  classifier: "scorer: {type: classifier, model: owner/name}\n",
  keyword: "scorer: {type: keyword, entries: [{term: a}]}\n",
};
