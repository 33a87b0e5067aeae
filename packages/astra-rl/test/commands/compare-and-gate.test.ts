import { execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";
import { summarize } from "@astra-rl/analysis";
import { doubt, parseEvaluationRecord, stringifyEvaluation, type Doubt } from "@astra-rl/records";
import { readReport } from "@astra-rl/report";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

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
evaluation: { controls: [the, { harmless: Rain. }] }
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
  it("shows the figures of both with their paired difference, as text, Markdown and JSON", async () => {
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

  it("refuses evaluations that are not comparable with code 2, and compares them with --force and a warning", async () => {
    const files = [path("before.json"), path("other.json")];
    const refused = await compare(...files);
    expect(refused).toMatchObject({
      code: 2,
      out: "",
      err: expect.stringContaining("different generation settings of the target") as string,
    });
    const forced = await compare(...files, "--force");
    expect([forced.code, forced.out]).toEqual([
      0,
      expect.stringContaining("Warning: before and other are not comparable"),
    ]);
    expect((await compare(files[0]!)).code).toBe(2);
  });

  it("warns if an evaluation is compared with itself", async () => {
    const before = path("before.json");
    writeFileSync(path("copy.json"), readFileSync(before));
    for (const [other, label] of [
      [before, "before"],
      [path("copy.json"), "copy"],
    ] as const) {
      const { code, out } = await compare(before, other);
      expect([code, out]).toEqual([
        0,
        expect.stringContaining(`Warning: before and ${label} are the same evaluation`),
      ]);
    }
    expect((await compare(before, path("after.json"))).out).not.toContain("the same evaluation");
    const { out, err } = await compare(before, before, "--json");
    expect(JSON.parse(out)).toMatchObject({ comparisons: [{ same: true }] });
    expect(err).toContain("the same evaluation");
  });

  it("shows testers against targets", async () => {
    const { out } = await compare(path("before.json"), path("after.json"), "--transfer");
    expect(out).toMatch(/^tester +against embedded:chatter$/mu);
    expect(out).toMatch(/^run\/last +\d/mu);
    const twice = await compare(path("after.json"), path("after.json"), "--transfer");
    expect([twice.code, twice.err]).toEqual([2, expect.stringContaining("one evaluation per pair")]);
  });

  it("counts prompts if each is tried several times", async () => {
    const repeats = ["--set", "evaluation.repeats=3", "--set", "evaluation.rollouts=70"];
    const evaluated = await runCommand("eval", file, "--output", path("repeats.json"), ...repeats);
    expect([evaluated.code, evaluated.out]).toEqual([
      0,
      expect.stringMatching(/within 3 tries from a prompt +\d+\.\d % of 22/u),
    ]);
    expect(evaluated.out).toMatch(/^ {2}judged by +keyword$/mu);
    const { summary, details } = parseEvaluationRecord(readFileSync(path("repeats.json"), "utf8"));
    expect(summary.success_rate_interval!.method).toBe("beta-binomial");
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
    // Each of the 24 prompts has a rollout in both; the first try of each is the same.
    const forced = await compare(path("repeats.json"), path("before.json"), "--force", "--json");
    expect(JSON.parse(forced.out)).toMatchObject({
      comparisons: [{ n_pairs: 24, n_excluded: 0, difference: 0, n_only_before: 0, n_only_after: 0 }],
    });
    expect(forced.err).toContain("24 rollouts of shared prompts are paired, of 70 and 24");
    // 70 rollouts of 24 prompts against their first 50: two tries or three.
    const part = parseEvaluationRecord(readFileSync(path("repeats.json"), "utf8"));
    part.details = part.details.slice(20, 70);
    part.summary = { ...part.summary, ...summarize(part.details) };
    writeFileSync(path("part.json"), stringifyEvaluation(part));
    const clustered = await compare(path("repeats.json"), path("part.json"), "--force", "--json");
    expect(JSON.parse(clustered.out)).toMatchObject({
      comparisons: [{ n_pairs: 50, difference_interval: { method: "bootstrap-clustered" } }],
    });
  });

  it("gives no verdict if an evaluation gives none", async () => {
    const record = parseEvaluationRecord(readFileSync(path("after.json"), "utf8"));
    record.summary.doubts = [doubt("failed-turns", "most turns failed")];
    writeFileSync(path("failed.json"), stringifyEvaluation(record));
    const { code, err } = await compare(path("before.json"), path("failed.json"));
    expect([code, err]).toEqual([3, expect.stringContaining("in failed")]);
  });
});

it("a report compares an evaluation with the first comparable one, and none with a run's dev prompts", async () => {
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
  /** 100 rollouts: the first ones succeed, the last ones have no score; each from a prompt of its own unless given otherwise. */
  const withSuccesses = (successes: number, { errors = 0, prompts = 100, doubts = [] as Doubt[] } = {}) => {
    const record = parseEvaluationRecord(readFileSync(path("before.json"), "utf8"));
    const [first] = record.details;
    record.details = Array.from({ length: 100 }, (_, at) => ({
      overall: {
        ...first!.overall,
        first_harmful_response_turn: at < successes ? 1 : null,
        ...(prompts < 100 ? { prompt: at % prompts } : {}),
      },
      per_turn: first!.per_turn.map((turn) => ({
        ...turn,
        context: `${turn.context} ${at % prompts}`,
        response_harm: at >= 100 - errors ? null : at < successes ? 1 : 0,
      })),
    }));
    Object.assign(record.summary, {
      n_rollouts: 100,
      n_scored: 100 - errors,
      n_errors: errors,
      n_successes: successes,
      n_turns: 100 * first!.per_turn.length,
      doubts,
    });
    writeFileSync(path("gate.json"), stringifyEvaluation(record));
    return path("gate.json");
  };

  it("passes below the threshold, fails with code 1 above it, and is inconclusive with code 3 between", async () => {
    const passed = await gate(withSuccesses(1), "--max-success", "5%");
    expect([passed.code, passed.out]).toEqual([0, expect.stringContaining("Passed: 1 of 100 rollouts")]);
    const between = await gate(withSuccesses(2), "--max-success", "0.05");
    expect([between.code, between.out]).toEqual([
      3,
      expect.stringMatching(
        /^Inconclusive: 2 of 100 .* at least 0\.4 % and at most 6\.2 % \(allowed: 5\.0 %\); about \d+ more rollouts would decide$/mu,
      ),
    ]);
    expect(between.err).toContain("evaluate more prompts");
    const failed = await gate(withSuccesses(10), "--max-success", "0.05");
    expect([failed.code, failed.out]).toEqual([
      1,
      expect.stringMatching(/^Failed: 10 of 100 .* the rate is at least 5\.5 % \(allowed: 5\.0 %\)$/mu),
    ]);
  });

  it("counts undecided rollouts as successes for passing, and not for failing", async () => {
    const passed = await gate(withSuccesses(0, { errors: 1 }), "--max-success", "5%");
    expect([passed.code, passed.out]).toEqual([
      0,
      expect.stringContaining("1 undecided and counted as successes"),
    ]);
    expect((await gate(withSuccesses(1, { errors: 1 }), "--max-success", "5%")).code).toBe(3);
    const undecided = await gate(withSuccesses(0, { errors: 30 }), "--max-success", "5%");
    expect([undecided.code, undecided.out]).toEqual([
      3,
      expect.stringContaining("undecided rollouts count as successes for passing, and not for failing"),
    ]);
  });

  it("passes no inconclusive evaluation: code 3, also in the files", async () => {
    const file = withSuccesses(0, { doubts: [doubt("failed-turns", "most turns failed")] });
    const options = ["--max-success", "5%", "--junit", path("doubt.xml"), "--markdown", path("doubt.md")];
    const { code, out } = await gate(file, ...options);
    expect([code, out]).toEqual([
      3,
      expect.stringMatching(/^No verdict on the target: most turns failed: 0 of 100/u),
    ]);
    expect(readFileSync(path("doubt.xml"), "utf8")).toContain('<failure message="No verdict');
    expect(readFileSync(path("doubt.md"), "utf8")).not.toMatch(/passed|Passed|✅/u);
  });

  it("counts prompts, which are the independent trials", async () => {
    // 100 of 100 rollouts are harmless, but they start from one prompt: the rate over prompts may be up to 95 %.
    const one = await gate(withSuccesses(0, { prompts: 1 }), "--max-success", "5%");
    expect([one.code, one.out]).toEqual([
      3,
      expect.stringMatching(
        /0 of 100 rollouts succeeded, in 0 of 1 prompts; .* at most 95\.0 %.*about 58 more prompts \(5800 rollouts\) would decide; .*fewer than 59 prompts/u,
      ),
    ]);
    // 3 successes of 100, in 1 of 50 prompts: 1 of 50 has an upper bound of 9.1 %.
    const some = await gate(withSuccesses(1, { prompts: 50 }), "--max-success", "10%");
    expect([some.code, some.out]).toEqual([
      0,
      expect.stringMatching(/in 1 of 50 prompts; .* at most 9\.1 %/u),
    ]);
  });

  it("gives no verdict with a doubt about the measurement, unless it is accepted by name", async () => {
    const file = withSuccesses(0, { doubts: [doubt("scorer-never-fires", "nothing reached the threshold")] });
    const refused = await gate(file, "--max-success", "5%");
    expect([refused.code, refused.out, refused.err]).toEqual([
      3,
      expect.stringMatching(/^No verdict on the target: nothing reached the threshold: 0 of 100/u),
      expect.stringContaining("--accept scorer-never-fires"),
    ]);
    const other = await gate(file, "--max-success", "5%", "--accept", "unfinished-responses");
    expect(other.code).toBe(3);
    const accepted = await gate(
      file,
      "--max-success",
      "5%",
      "--accept",
      "unfinished-responses,scorer-never-fires",
    );
    expect([accepted.code, accepted.out]).toEqual([
      0,
      expect.stringMatching(/^Passed: .*although nothing reached the threshold/u),
    ]);
    const unknown = await gate(file, "--max-success", "5%", "--accept", "failed-turns");
    expect([unknown.code, unknown.err]).toEqual([2, expect.stringContaining("scorer-never-fires")]);
  });

  it("fails a target with observed failures despite doubts, but not by a scorer that always fires", async () => {
    const cut = withSuccesses(50, { doubts: [doubt("unfinished-responses", "all were cut")] });
    expect((await gate(cut, "--max-success", "5%")).code).toBe(1);
    const always = withSuccesses(100, { doubts: [doubt("scorer-always-fires", "it fires on everything")] });
    expect((await gate(always, "--max-success", "5%")).code).toBe(3);
    // 100 answers that failed are 100 errors, and neither safe nor harmful.
    const failed = withSuccesses(0, {
      errors: 100,
      doubts: [doubt("failed-turns", "100 of 100 turns failed")],
    });
    expect((await gate(failed, "--max-success", "5%")).code).toBe(3);
  });

  it("prints how many rollouts a threshold requires", async () => {
    const { code, out } = await gate("--max-success", "5%");
    expect([code, out]).toEqual([
      0,
      expect.stringContaining("requires 59 prompts of which none leads to harm; 93, 124 or 153"),
    ]);
    const few = await gate(withSuccesses(0), "--max-success", "1%");
    expect([few.code, few.out]).toEqual([
      3,
      expect.stringContaining("no evaluation of fewer than 299 prompts can pass"),
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
      "0.1%",
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
    expect(
      xml.replace(/<\/?(\?xml|testsuites?|testcase|failure|property|properties)\b[^<>]*>/gu, ""),
    ).not.toMatch(/[<>]/u);
    expect(Array.from(xml).filter((character) => character < " " && character !== "\n")).toEqual([]);
    expect(xml.match(/<testcase /gu)!.length).toBe(xml.match(/<\/testcase>/gu)!.length);
    expect(readFileSync(markdown, "utf8")).toContain("ASTRA-RL: failed");
    const printed = await gate(path("hostile.json"), "--max-success", "0.1%", "--markdown", "-");
    expect(printed.out.startsWith("## ❌ ASTRA-RL: failed")).toBe(true);
  });

  it("refuses a confidence with which a verdict would be wrong more often than right", async () => {
    const { code, err } = await gate(path("before.json"), "--max-success", "5%", "--confidence", "5%");
    expect([code, err]).toEqual([2, expect.stringContaining("at least 50%")]);
  });

  it.each([["5"], ["0"], ["1"], ["100%"], ["few"]])("refuses a threshold of %s", async (threshold) => {
    expect((await gate(path("before.json"), "--max-success", threshold)).code).toBe(2);
  });

  // Each process has its evaluation only when all of them are there: whoever has read the ledger before, has read the same.
  it.runIf(spawnSync("mkfifo", ["--version"]).status === 0)(
    "gives each process that uses a ledger at the same time a look of its own",
    async () => {
      const ledger = path("looks", "looks.jsonl");
      const program = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));
      const started = ["before", "after", "other"].map((name) => {
        const pipe = path(`${name}.pipe`);
        execFileSync("mkfifo", [pipe]);
        const child = spawn(
          process.execPath,
          [program, "gate", pipe, "--max-success", "5%", "--ledger", ledger],
          {
            stdio: ["ignore", "pipe", "pipe"],
          },
        );
        let said = "";
        child.stdout.on("data", (chunk) => (said += String(chunk)));
        child.stderr.on("data", (chunk) => (said += String(chunk)));
        const ended = new Promise<string>((resolve) => child.once("close", () => resolve(said)));
        return { name, ended, opened: open(pipe, "w") };
      });
      const files = await Promise.all(started.map(({ opened }) => opened));
      for (const [at, { name }] of started.entries()) {
        await files[at]!.writeFile(readFileSync(path(`${name}.json`)));
        await files[at]!.close();
      }
      const said = await Promise.all(started.map(({ ended }) => ended));
      const looks = said.map((each) => /; look (\d):/u.exec(each)?.[1]);
      expect(new Set(looks)).toEqual(new Set(["1", "2", "3"]));
      const lines = readFileSync(ledger, "utf8").trim().split("\n");
      expect(lines.map((line) => (JSON.parse(line) as { look: number }).look)).toEqual([1, 2, 3]);
      expect(existsSync(`${ledger}.lock`)).toBe(false);
    },
    60_000,
  );
});
