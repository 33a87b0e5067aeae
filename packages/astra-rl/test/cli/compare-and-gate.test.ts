import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { parseEvaluationRecord, stringifyEvaluation } from "../../src/records/index.js";
import { readReport } from "../../src/report/index.js";
import { temporaryFolder } from "../training/temporary-folder.js";
import { runCommand } from "./run-command.js";

const folder = temporaryFolder();
const path = (...parts: string[]) => join(folder, ...parts);
const file = path("run.yaml");

beforeAll(async () => {
  writeFileSync(path("dev.txt"), "How are you? \nNice day. \n");
  writeFileSync(path("test.txt"), Array.from({ length: 24 }, (_, at) => `Day ${at} of rain. `).join("\n"));
  writeFileSync(
    file,
    `
seed: 5
models: { tester: embedded:chatter, target: embedded:chatter }
prompts: { train: ./dev.txt, dev: ./dev.txt, test: ./test.txt }
sampler: { width: 2, depth: 2 }
scorer: { type: keyword, entries: [{ term: the, weight: 0.9 }, { term: i, weight: 0.9 }] }
generation: { tester: { maxNewTokens: 6 }, target: { maxNewTokens: 6 } }
training: { trainingSteps: 2, evaluateEvery: 1, numEpisodesPerExperience: 4, learningRate: 0.01 }
`,
  );
  const evaluate = (name: string, ...more: string[]) =>
    runCommand("eval", file, "--output", path(name), "--quiet", ...more);
  await evaluate("before.json");
  await runCommand("train", file, "--run-dir", path("run"), "--quiet");
  await evaluate("after.json", "--tester", path("run", "checkpoints", "last"));
  await evaluate(
    "other.json",
    "--tester",
    path("run", "checkpoints", "best"),
    "--set",
    "generation.target.maxNewTokens=5",
  );
});

const compare = (...args: string[]) => runCommand("compare", ...args);

describe("astra-rl compare", () => {
  it("shows figures of both with their paired difference, as text, Markdown and JSON", async () => {
    const files = [path("before.json"), path("after.json")];
    const text = await compare(...files);
    expect([text.code, text.err]).toEqual([0, ""]);
    expect(text.out).toMatch(/^ +before +after$/mu);
    expect(text.out).toMatch(/^ {2}paired test +p = /mu);
    expect(text.out).not.toContain("Holm");
    for (const line of text.out.split("\n")) expect(line.length).toBeLessThanOrEqual(80);
    expect((await compare(...files, files[1]!)).out).toContain("adjusted (Holm)");
    const markdown = await compare(...files, "--markdown");
    expect(markdown.out).toMatch(
      /^\| {2}\| before \| after \|\n\| --- \| --: \| --: \|\n\| attack success rate \|/u,
    );
    const json = JSON.parse((await compare(...files, "--json")).out) as {
      comparisons: { n_pairs: number; adjusted: object }[];
    };
    expect(json).toMatchObject({
      baseline: "before",
      comparisons: [{ label: "after", unlike: [], n_pairs: 24 }],
    });
  });

  it("refuses what is unlike with code 2, and compares it with --force and a warning", async () => {
    const files = [path("before.json"), path("other.json")];
    const refused = await compare(...files);
    expect(refused).toMatchObject({
      code: 2,
      out: "",
      err: expect.stringContaining("another decoding of the target") as string,
    });
    const forced = await compare(...files, "--force");
    expect([forced.code, forced.out]).toEqual([
      0,
      expect.stringContaining("Warning: before and other are unlike"),
    ]);
    expect((await compare(files[0]!)).code).toBe(2);
  });

  it("shows testers against targets", async () => {
    const { out } = await compare(path("before.json"), path("after.json"), "--transfer");
    expect(out).toMatch(/^tester +against embedded:chatter$/mu);
    expect(out).toMatch(/^run\/last +\d/mu);
    const twice = await compare(path("after.json"), path("after.json"), "--transfer");
    expect([twice.code, twice.err]).toEqual([2, expect.stringContaining("one for each pair")]);
  });

  it("counts prompts where each is tried several times", async () => {
    const repeats = ["--set", "evaluation.repeats=3", "--set", "evaluation.rollouts=70"];
    const evaluated = await runCommand("eval", file, "--output", path("repeats.json"), ...repeats);
    expect([evaluated.code, evaluated.out]).toEqual([
      0,
      expect.stringMatching(/within 3 tries from a prompt +\d+\.\d % of 22/u),
    ]);
    expect(evaluated.out).toMatch(/^ {2}judged by +keyword$/mu);
    const { summary, details } = parseEvaluationRecord(readFileSync(path("repeats.json"), "utf8"));
    expect(summary.success_rate_interval!.method).toBe("wilson-clustered");
    expect(details.map(({ overall }) => overall.prompt)).toEqual(
      Array.from({ length: 70 }, (_, at) => at % 24),
    );
    // The first rollouts are those of an evaluation without repeats.
    const once = parseEvaluationRecord(readFileSync(path("before.json"), "utf8"));
    const texts = (rollouts: typeof details) =>
      rollouts.map(({ per_turn: turns }) => turns.map(({ probe, response }) => [probe, response]));
    expect(texts(details.slice(0, 24))).toEqual(texts(once.details));
    expect(texts(details.slice(24, 48))).not.toEqual(texts(once.details));
    expect((await compare(path("before.json"), path("repeats.json"))).err).toContain("24 and 70 rollouts");
  });

  it("gives no verdict where an evaluation gives none", async () => {
    const record = parseEvaluationRecord(readFileSync(path("after.json"), "utf8"));
    record.summary.doubts = ["most turns failed"];
    writeFileSync(path("failed.json"), stringifyEvaluation(record));
    const { code, err } = await compare(path("before.json"), path("failed.json"));
    expect([code, err]).toEqual([3, expect.stringContaining("in failed")]);
  });
});

it("a report pairs an evaluation with the first that is like it, and none with a run's dev prompts", async () => {
  const report = readReport([path("run"), path("before.json"), path("after.json")]);
  const labels = report.evaluations.map(({ label }) => label);
  expect(labels).toEqual(["dev, step 1", "dev, step 2", "before", "after"]);
  expect([labels[report.comparison!.before], labels[report.comparison!.after]]).toEqual(["before", "after"]);
  expect(report.comparison!.record.p_value).not.toBeNull();
  expect(readReport([path("run")]).comparison).toMatchObject({ before: 0, after: 1 });
  // The dev steps of two runs are no before and after.
  await runCommand("train", file, "--run-dir", path("second"), "--quiet");
  const both = readReport([path("run"), path("second")]);
  expect(both.evaluations[both.comparison!.before]!.run).toBe("second");
  expect(readReport([path("before.json"), path("other.json")]).comparison).toBeNull();
});

describe("astra-rl gate", () => {
  const gate = (...args: string[]) => runCommand("gate", ...args);
  const withSuccesses = (successes: number, errors = 0) => {
    const record = parseEvaluationRecord(readFileSync(path("before.json"), "utf8"));
    Object.assign(record.summary, {
      n_rollouts: 100,
      n_scored: 100 - errors,
      n_errors: errors,
      n_successes: successes,
      success_rate_bounds: { lower: successes / 100, upper: (successes + errors) / 100 },
    });
    writeFileSync(path("gate.json"), stringifyEvaluation(record));
    return path("gate.json");
  };

  it("passes with an upper bound below the threshold, and fails with code 1 above it", async () => {
    const passed = await gate(withSuccesses(1), "--max-success", "5%");
    expect([passed.code, passed.out]).toEqual([0, expect.stringContaining("Passed: 1 of 100 rollouts")]);
    const failed = await gate(withSuccesses(2), "--max-success", "0.05");
    expect([failed.code, failed.out]).toEqual([
      1,
      expect.stringContaining("the rate is at most 6.2 %, and may be at most 5.0 %"),
    ]);
    const undecided = await gate(withSuccesses(1, 1), "--max-success", "5%");
    expect([undecided.code, undecided.out]).toEqual([
      1,
      expect.stringContaining("1 undecided and counted as successes"),
    ]);
  });

  it("passes nothing that says nothing: code 3, in the files, too", async () => {
    const file = withSuccesses(0);
    const record = parseEvaluationRecord(readFileSync(file, "utf8"));
    record.summary.doubts = ["most turns failed"];
    writeFileSync(file, stringifyEvaluation(record));
    const options = ["--max-success", "5%", "--junit", path("doubt.xml"), "--markdown", path("doubt.md")];
    const { code, out } = await gate(file, ...options);
    expect([code, out]).toEqual([
      3,
      expect.stringMatching(/^No verdict on the target: most turns failed: 0 of 100/u),
    ]);
    expect(readFileSync(path("doubt.xml"), "utf8")).toContain('<failure message="No verdict');
    expect(readFileSync(path("doubt.md"), "utf8")).not.toMatch(/passed|Passed|✅/u);
  });

  it("refuses rollouts that are no independent trials", async () => {
    const { code, err } = await gate(path("repeats.json"), "--max-success", "5%");
    expect([code, err]).toEqual([2, expect.stringContaining("evaluation.repeats: 1")]);
  });

  it("says how many rollouts a threshold needs", async () => {
    const { code, out } = await gate("--max-success", "5%");
    expect([code, out]).toEqual([
      0,
      expect.stringContaining("needs 59 rollouts of which none succeeds; 93, 124 or 153"),
    ]);
    const few = await gate(path("before.json"), "--max-success", "1%");
    expect([few.code, few.out]).toEqual([
      1,
      expect.stringContaining("no evaluation of fewer than 299 rollouts can pass"),
    ]);
  });

  it("writes JUnit XML and Markdown with the conversations that failed", async () => {
    const record = parseEvaluationRecord(readFileSync(path("before.json"), "utf8"));
    const harmful = record.details.find(({ overall }) => overall.first_harmful_response_turn !== null);
    harmful!.per_turn[0]!.probe = '</failure>]]> & "quoted" \u0000 \u001b[31m `x`';
    writeFileSync(path("hostile.json"), stringifyEvaluation(record));
    const [junit, markdown] = [path("out", "junit.xml"), path("out", "gate.md")];
    const options = [
      "--max-success",
      "2%",
      "--conversations",
      "30",
      "--junit",
      junit,
      "--markdown",
      markdown,
    ];
    expect((await gate(path("hostile.json"), ...options)).code).toBe(1);
    const xml = readFileSync(junit, "utf8");
    expect(xml).toMatch(
      /^<\?xml version="1\.0" encoding="UTF-8"\?>\n<testsuites tests="(\d+)" failures="\1">/u,
    );
    // No markup but our own, and nothing that XML 1.0 does not have.
    expect(xml.replace(/<\/?(\?xml|testsuites?|testcase|failure)\b[^<>]*>/gu, "")).not.toMatch(/[<>]/u);
    expect(Array.from(xml).filter((character) => character < " " && character !== "\n")).toEqual([]);
    expect(xml.match(/<testcase /gu)!.length).toBe(xml.match(/<\/testcase>/gu)!.length);
    expect(readFileSync(markdown, "utf8")).toContain("ASTRA-RL: failed");
    const printed = await gate(path("hostile.json"), "--max-success", "2%", "--markdown", "-");
    expect(printed.out.startsWith("## ❌ ASTRA-RL: failed")).toBe(true);
  });

  it.each([["5"], ["0"], ["1"], ["100%"], ["few"]])("refuses a threshold of %s", async (threshold) => {
    expect((await gate(path("before.json"), "--max-success", threshold)).code).toBe(2);
  });
});
