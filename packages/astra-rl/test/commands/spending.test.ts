import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { parseEvaluationRecord, spendingLines } from "@astra-rl/records";
import { completion, json, lastText, loopback } from "../../../http/test/loopback.js";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

it("eval, search and replay record and print what they spent on a server, and gate shows it", async () => {
  const { baseURL, calls } = await loopback((asked, response) =>
    json(response, 200, completion(asked, lastText(asked).length % 2 === 0 ? "You fool." : "Fine.")),
  );
  const folder = temporaryFolder();
  const path = (name: string) => join(folder, name);
  writeFileSync(path("train.txt"), "Hello. \nIt rained. \nWhat now? \n");
  writeFileSync(path("test.txt"), "A day. \nThe night. \nGood morning. \n");
  writeFileSync(
    path("run.yaml"),
    `
seed: 5
models:
  tester: embedded:chatter
  target: { type: openai, baseURL: "${baseURL}", model: m, price: { input: 100, output: 1000 } }
  likelihood: embedded:chatter
prompts: { train: ./train.txt, dev: ./train.txt, test: ./test.txt }
sampler: { width: 2, depth: 1 }
scorer: { type: keyword, entries: [{ term: fool, weight: 0.9 }] }
generation: { tester: { maxNewTokens: 4 }, target: { maxNewTokens: 4, topK: 0 } }
`,
  );
  let before = calls();
  const check = async (name: string, ...command: string[]) => {
    const options = ["--output", path(name), "--accept", "target-silent"];
    const ran = await runCommand(...command, path("run.yaml"), ...options);
    const made = calls() - before;
    before = calls();
    const { spending } = parseEvaluationRecord(readFileSync(path(name), "utf8"));
    expect(Object.keys(spending!)).toEqual(["target"]);
    const { calls: counted, input_tokens: read, output_tokens: written, dollars } = spending!["target"]!;
    expect(made).toBeGreaterThan(4);
    expect(counted).toBe(made);
    expect(dollars).toBeCloseTo((100 * read + 1000 * written) / 1e6, 12);
    expect(ran.err.split("\n")).toContain(spendingLines(spending!)[0]);
    await runCommand("gate", path(name), "--max-success", "5%", "--markdown", path("gate.md"));
    expect(readFileSync(path("gate.md"), "utf8")).toContain(`target: ${made} calls`);
  };
  await check("found.json", "eval");
  await check("searched.json", "search", "--queries", "24", "--probes", "2");
  const bundle = [
    "export",
    path("found.json"),
    "--format",
    "replay",
    "--all",
    "--output",
    path("attacks.json"),
  ];
  expect((await runCommand(...bundle)).code).toBe(0);
  await check("replayed.json", "replay", path("attacks.json"));
});

it("two judges of one model have names of their own", async () => {
  const verdicts = new Map<string, number>();
  const { baseURL } = await loopback((asked, response) => {
    if (asked.body.model === "m") {
      json(response, 200, completion(asked, lastText(asked).length % 2 === 0 ? "You fool." : "Fine."));
      return;
    }
    const isHarm = asked.body.messages![0]!.content.includes('"harmful"');
    const rubric = isHarm ? "harm" : "compliance";
    verdicts.set(rubric, (verdicts.get(rubric) ?? 0) + 1);
    const verdict = isHarm ? { harmful: true } : { refused: true, convincing: 1, specific: 1 };
    json(response, 200, completion(asked, JSON.stringify(verdict)));
  });
  const folder = temporaryFolder();
  const path = (name: string) => join(folder, name);
  writeFileSync(path("train.txt"), "Hello. \nIt rained. \nWhat now? \n");
  const judge = (more: string) => `{ type: judge, baseURL: "${baseURL}", model: judge, ${more} }`;
  writeFileSync(
    path("run.yaml"),
    `
seed: 5
models:
  tester: embedded:chatter
  target: { type: openai, baseURL: "${baseURL}", model: m }
  likelihood: embedded:chatter
prompts: { train: ./train.txt, dev: ./train.txt, test: ./train.txt }
sampler: { width: 2, depth: 1 }
scorer: ${judge("rubric: harm")}
evaluation: { secondScorer: ${judge("rubric: compliance, votes: 3")} }
generation: { tester: { maxNewTokens: 4 }, target: { maxNewTokens: 4, topK: 0 } }
`,
  );
  const accept = ["--accept", "target-silent,harmless-flagged"];
  await runCommand("eval", path("run.yaml"), "--output", path("made.json"), ...accept);
  const { spending } = parseEvaluationRecord(readFileSync(path("made.json"), "utf8"));
  expect(Object.keys(spending!)).toEqual(["target", "judge judge", "judge judge (2)"]);
  const probes = 3;
  expect(spending!["judge judge"]!.calls).toBe(verdicts.get("harm")! + probes);
  expect(spending!["judge judge (2)"]!.calls).toBe(verdicts.get("compliance")! + probes);
});
