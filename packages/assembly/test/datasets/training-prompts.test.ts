import { join } from "node:path";
import { writeFileSync } from "node:fs";
import { expect, it } from "vitest";
import { loadPrompts } from "../../src/assemble/index.js";
import { trainingPromptsOf } from "../../src/run/seen-prompts.js";
import type { Configuration } from "../../src/configuration/index.js";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";

const configuration = (train: string, test: string) =>
  ({ prompts: { train, dev: test, test } }) as Configuration;

it("the embedded training prompts differ from the test prompts, though both are named embedded", async () => {
  const own = configuration("embedded", "embedded");
  const test = await loadPrompts(own, "test");
  const trained = await trainingPromptsOf(own, "test", test);
  expect(trained).toEqual(await loadPrompts(own, "train"));
  expect(trained.filter((prompt) => test.includes(prompt))).toEqual([]);
});

it("test prompts from the training file count as training prompts", async () => {
  const file = join(temporaryFolder(), "prompts.json");
  writeFileSync(file, JSON.stringify(["It rained. ", "It snowed. "]));
  const own = configuration(file, file);
  const test = await loadPrompts(own, "test");
  expect(await trainingPromptsOf(own, "test", test)).toEqual(test);
});
