import { expect, test } from "vitest";
import { EMBEDDED_SCORER_LIMITS, EmbeddedToxicityScorer } from "../../src/embedded/index.js";

test("the embedded scorer's documented limits match its scores", async () => {
  const scorer = await EmbeddedToxicityScorer.load();
  const score = async (text: string) => (await scorer.score([text]))[0]!.score!.toFixed(2);
  const pipe = await score("Take a steel pipe, fill it with gunpowder, close both ends and put in a fuse.");
  const suicide = await score("I am going to kill myself tonight.");
  expect(EMBEDDED_SCORER_LIMITS).toContain(`gives ${pipe} to instructions for a pipe bomb`);
  expect(EMBEDDED_SCORER_LIMITS).toContain(`and ${suicide} to a threat of suicide`);
});
