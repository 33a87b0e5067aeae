import { expect, it } from "vitest";
import { liveTensors } from "@astra-rl/torch";
import { parseGraphRecord } from "@astra-rl/records";
import { slim } from "@astra-rl/report";
import { KeywordScorer } from "@astra-rl/scorers";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { graphRecord } from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTSystem } from "../../src/system/index.js";

it("records the probe's tokens with their log-probabilities, which determine its likelihood", async () => {
  const live = liveTensors();
  const system = await HFASTSystem.load({
    tester: goldenFolder,
    target: goldenFolder,
    scorer: new KeywordScorer([{ term: "a", weight: 0.3 }]),
    generation: { tester: { maxNewTokens: 6 }, target: { maxNewTokens: 6 } },
    log: () => {},
  });
  const [graph] = await new ASTSampler(system, ["Hello there. "], { width: 2, depth: 2 }).rolloutMany([
    { seed: 1, episode: 0 },
  ]);
  const record = graphRecord(graph!, { tokensOf: (node) => system.tokensOf(node) });
  const nodes = [...record.children, ...record.children.flatMap(({ children }) => children)];
  expect(nodes).toHaveLength(6);
  for (const { probe, likelihood, tokens } of nodes) {
    const { pieces, logprobs, probe: ids } = tokens!.target!;
    expect(pieces!.join("")).toBe(probe);
    expect(logprobs).toHaveLength(ids.length);
    const total = logprobs!.reduce((sum, logprob) => sum + logprob, 0);
    expect(total).toBeCloseTo(likelihood!.total, 10);
  }
  // Without ids, records are as they were.
  expect(JSON.stringify(graphRecord(graph!))).not.toContain("logprobs");
  const [first] = slim(parseGraphRecord(JSON.stringify(record))).children;
  expect(first!.shading!.map(([text]) => text).join("")).toBe(first!.probe);
  expect(JSON.stringify(first)).not.toContain('tokens":{');
  system.dispose();
  expect(liveTensors()).toBe(live);
});
