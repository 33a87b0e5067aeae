import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Graph, Node, stringifyGraph } from "@astra-rl/method";
import { summarize } from "@astra-rl/analysis";
import { stringifyEvaluation, stringifyMetrics, type EvaluationDetail } from "@astra-rl/records";
import { csvReport, embeddedJson, htmlReport, markdownReport, readReport } from "@astra-rl/report";
import { breaking } from "../../../base/test/support/breaking.js";

const folder = mkdtempSync(join(tmpdir(), "astra-rl-report-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (...parts: string[]) => join(folder, ...parts);

const PROBES = [
  "=1+1",
  "＝1+1",
  "＠SUM(A1)",
  "+cmd|' /C calc'!A0",
  " \t@SUM(A1)",
  "-2",
  'plain, "quoted"\nline',
];

function evaluation(harm: number, prompts: readonly string[] = PROBES) {
  const details = prompts.map((probe, index): EvaluationDetail => ({
    overall: {
      num_turns: 1,
      num_errors: 0,
      mean_reward: harm,
      mean_probe_harm: 0,
      mean_response_harm: harm,
      first_harmful_probe_turn: null,
      first_harmful_response_turn: harm >= 0.5 && index > 0 ? 1 : null,
      harmless_probe_success: harm >= 0.5 && index > 0,
    },
    per_turn: [
      {
        turn: 1,
        reward: harm,
        probe_harm: 0,
        response_harm: index > 0 ? harm : 0,
        context: `prompt ${index}`,
        probe,
        response: "</script><!-- `r`",
        probe_nll: 0.5,
        probe_tokens: 3,
        error: null,
      },
    ],
  }));
  return { summary: summarize(details), details, version: 2 as const };
}

const graph = (episode: number) =>
  new Graph({
    context: "Hello.",
    seed: 1,
    episode,
    children: [
      new Node({
        context: "Hello.",
        probe: "How are you?",
        response: "Fine.",
        reward: 1 / 3,
        children: [
          new Node({ context: "Hello.How are you?Fine.", probe: "Sure?", response: "Yes.", reward: 0 }),
        ],
      }),
    ],
  });

function makeRun(name: string, graphs: number): string {
  mkdirSync(at(name));
  writeFileSync(
    at(name, "config.resolved.yaml"),
    "seed: 3\nmodels: {tester: a/b, target: c/d}\nalgorithm: {type: dpo}\n",
  );
  const metrics = [1, 2].map(
    (step) => `${stringifyMetrics({ step, loss: 0.5, "reward/mean": 0.1, "x/y": step })}\n`,
  );
  writeFileSync(at(name, "metrics.jsonl"), `${metrics.join("")}{"step":3,"lo`);
  const lines = Array.from(
    { length: graphs },
    (_, index) => `${stringifyGraph(graph(index), { step: index + 1 })}\n`,
  );
  writeFileSync(at(name, "graphs.jsonl"), lines.join(""));
  return at(name);
}

// Shared fixtures.
beforeAll(() => {
  makeRun("run", 3);
  writeFileSync(at("a.json"), stringifyEvaluation(evaluation(0.1)));
  writeFileSync(at("b.json"), stringifyEvaluation(evaluation(0.9)));
});

test("reads configuration, steps and graphs of a run folder, and skips a truncated last line", () => {
  const { runs, evaluations, comparison } = readReport([at("run")]);
  expect(runs).toHaveLength(1);
  expect(runs[0]).toMatchObject({ label: "run", configuration: { seed: 3 }, graphs_total: 3, run: null });
  expect(runs[0]!.metrics.map(({ step }) => step)).toEqual([1, 2]);
  const [node] = runs[0]!.graphs[2]!.children;
  // Contexts that follow from the tree, and excess digits, are omitted.
  expect(node).not.toHaveProperty("context");
  expect(node!.reward).toBe(0.33333);
  expect(node!.children[0]).toMatchObject({ probe: "Sure?", response: "Yes." });
  expect([evaluations, comparison]).toEqual([[], null]);
});

test("an evaluation of a given run folder is in the report once, however it is named", () => {
  const run = makeRun("with-evaluations", 1);
  writeFileSync(join(run, "evaluation-before.json"), stringifyEvaluation(evaluation(0.1)));
  writeFileSync(join(run, "evaluation-after.json"), stringifyEvaluation(evaluation(0.9)));
  symlinkSync(join(run, "evaluation-after.json"), at("link.json"));
  const { evaluations, comparison } = readReport([at("link.json"), run, join(run, "evaluation-before.json")]);
  expect(evaluations.map(({ label }) => label)).toEqual(["before", "after"]);
  expect(comparison).toMatchObject({ before: 0, after: 1 });
});

test("selects the requested number of graphs evenly, including the last", () => {
  const path = makeRun("many", 100);
  for (const graphs of [1, 2, 7, 50, 99, 100, 500]) {
    const [run] = readReport([path], { graphs }).runs;
    expect(run!.graphs_total).toBe(100);
    const steps = run!.graphs.map(({ step }) => step!);
    expect(steps.length).toBeLessThanOrEqual(graphs);
    expect(steps.length).toBeGreaterThan(Math.min(graphs, 100) / 2 - 1);
    expect(steps[0]).toBe(1);
    if (graphs > 1) expect(steps.at(-1)).toBe(100);
    expect([...steps].sort((a, b) => a - b)).toEqual(steps);
  }
});

test("compares the first and the last evaluation file if they start from the same prompts", () => {
  writeFileSync(at("c.json"), stringifyEvaluation(evaluation(0.9, ["one"])));
  const both = readReport([at("a.json"), at("b.json")]);
  expect(both.evaluations.map(({ label }) => label)).toEqual(["a", "b"]);
  expect(both.comparison).toMatchObject({
    before: 0,
    after: 1,
    record: { difference: (PROBES.length - 1) / PROBES.length },
  });
  expect(readReport([at("a.json"), at("c.json")]).comparison).toBeNull();
});

test("uses evaluations during training if a folder has no others", () => {
  const path = makeRun("dev", 0);
  const lines = [5, 10, 15].map((step) => JSON.stringify({ step, ...evaluation(step / 20) }));
  writeFileSync(at("dev", "evaluations.jsonl"), `${lines.join("\n")}\n`);
  const { runs, evaluations, comparison } = readReport([path]);
  expect(runs[0]!.evaluations.map(({ step }) => step)).toEqual([5, 10, 15]);
  expect(evaluations.map(({ label }) => label)).toEqual(["dev, step 5", "dev, step 15"]);
  expect(comparison?.record.n_pairs).toBe(PROBES.length);
});

test("refuses a path that is neither run nor evaluation, by name", () => {
  mkdirSync(at("empty"));
  writeFileSync(at("text.json"), "{}");
  expect(() => readReport([at("empty")])).toThrow(breaking("not-a-run-folder", "empty"));
  expect(() => readReport([at("none")])).toThrow(breaking("file-not-found", "none"));
  expect(() => readReport([at("text.json")])).toThrow(breaking("missing-key", "text.json"));
});

test("CSV: a row per turn, and no cell that a spreadsheet interprets as a formula", () => {
  const lines = csvReport(readReport([at("b.json")]), "turns").split("\r\n");
  expect(lines[0]).toBe(
    "evaluation,rollout,turn,context,probe,response,probe harm,response harm,reward,probe NLL,error",
  );
  expect(lines).toHaveLength(PROBES.length + 2);
  const probes = lines.slice(1, -1).map((line) => line.split(/prompt \d,/)[1]!);
  expect(probes.map((rest) => rest.replace(/,<\/script>.*/, ""))).toEqual([
    `"'=1+1"`,
    `"'＝1+1"`,
    `"'＠SUM(A1)"`,
    `"'+cmd|' /C calc'!A0"`,
    // Shown as a backslash and a letter, which no spreadsheet skips.
    '" \\t@SUM(A1)"',
    `"'-2"`,
    '"plain, ""quoted""\\nline"',
  ]);
  const steps = csvReport(readReport([at("run")]), "steps");
  expect(steps).toBe("run,step,loss,reward/mean,x/y\r\nrun,1,0.5,0.1,1\r\nrun,2,0.5,0.1,2\r\n");
});

test("Markdown: names cannot be markup, texts stand in lines of their own", () => {
  const text = markdownReport(readReport([at("run"), at("a.json"), at("b.json")]));
  expect(text).toContain("- tester: a/b");
  expect(text).toContain("| attack success rate |");
  expect(text).toContain("points (95 % interval");
  for (const line of text.split("\n")) if (line.includes("</script>")) expect(line).toMatch(/^ {4}/);
});

test("Markdown: models and scorers that are sections are named, with the threshold of harm", () => {
  const report = readReport([at("run")]);
  const configuration = {
    models: {
      tester: { path: "/models/small", system: "x" },
      target: { type: "openai", model: "chat-1", baseURL: "http://127.0.0.1" },
      otherTargets: ["embedded:chat"],
    },
    scorer: { type: "judge", model: "guard" },
    evaluation: { threshold: 0.4 },
    algorithm: { type: "dpo" },
    seed: 3,
  };
  const runs = report.runs.map((run) => ({ ...run, configuration }));
  const facts = markdownReport({ ...report, runs })
    .split("\n")
    .filter((line) => line.startsWith("- "));
  expect(facts).toEqual([
    "- tester: /models/small",
    "- target: chat-1, embedded:chat",
    "- judged by: judge guard",
    "- harmful from: 0.4",
    "- algorithm: dpo",
    "- seed: 3",
    "- training steps: 2",
  ]);
});

test("JSON inside a page contains no character that could end its element", () => {
  const hostile = { a: "</script><!--\u2028\u202E\uD800&<", "<b>": [1, null] };
  const text = embeddedJson(hostile);
  expect(text).not.toMatch(/[<\u2028\u202E\uD800]/u);
  expect(JSON.parse(text)).toEqual(hostile);
  const page = htmlReport(readReport([at("b.json")]));
  expect(page.match(/<\/script>/g)).toHaveLength(2);
});
