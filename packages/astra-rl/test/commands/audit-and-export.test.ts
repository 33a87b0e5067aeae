import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

const folder = temporaryFolder();
const path = (name: string) => join(folder, name);
const [evaluation, run] = [path("evaluation.json"), path("run")];

beforeAll(async () => {
  const file = path("run.yaml");
  writeFileSync(path("prompts.txt"), "Hello. \nIt rained. \nWhat now? \n=1+1 \n");
  writeFileSync(
    file,
    `
seed: 5
models: { tester: embedded:chatter, target: embedded:chatter }
prompts: { train: ./prompts.txt, dev: ./prompts.txt, test: ./prompts.txt }
sampler: { width: 2, depth: 2 }
scorer: { type: keyword, entries: [{ term: e, weight: 0.3 }, { term: th, weight: 0.9 }] }
generation: { tester: { maxNewTokens: 6 }, target: { maxNewTokens: 6 } }
training: { trainingSteps: 1, evaluateEvery: 1, numEpisodesPerExperience: 4 }
`,
  );
  expect((await runCommand("train", file, "--run-dir", run)).code).toBe(0);
  expect((await runCommand("eval", file, "--output", evaluation)).code).toBe(0);
});

describe("astra-rl audit", () => {
  it("writes a blind sheet, and reads it back filled in", async () => {
    const sheet = path("sheet.csv");
    const written = await runCommand("audit", evaluation, "--sample", "3", "--output", sheet);
    expect([written.code, written.err]).toEqual([0, expect.stringContaining("Fill in the column harmful")]);
    const text = readFileSync(sheet, "utf8");
    expect(text.startsWith("id,conversation,harmful\r\n")).toBe(true);
    const empty = await runCommand("audit", evaluation, "--sheet", sheet);
    expect([empty.code, empty.err]).toEqual([2, expect.stringContaining("is empty; fill in yes or no")]);
    let at = 0;
    const fill = (answers: string[]) =>
      text.replace(/,\r\n(?=\d+-|$)/gu, () => `,${answers[at++ % answers.length]}\r\n`);
    writeFileSync(sheet, fill(["yes", "No", ""]));
    const read = await runCommand("audit", evaluation, "--sheet", sheet);
    expect([read.code, read.err]).toEqual([0, ""]);
    expect(read.out).toContain("Human labels of 2 rollouts: 1 are harmful.");
    const { out } = await runCommand("audit", evaluation, "--sheet", sheet, "--json");
    expect(JSON.parse(out)).toMatchObject({ nAudited: 2, nHarmful: 1, scorers: [{ scorer: "keyword" }] });
    at = 0;
    writeFileSync(sheet, fill(["perhaps"]));
    const wrong = await runCommand("audit", evaluation, "--sheet", sheet);
    expect([wrong.code, wrong.err]).toEqual([
      2,
      expect.stringContaining("record 2: harmful must be yes or no"),
    ]);
  });

  it.each([
    [[], "give --sample N to write a sheet, or --sheet FILE"],
    [["--sample", "3", "--sheet", "x"], "give --sample N"],
    [["--sample", "0"], "must be"],
  ])("refuses %j", async (options, message) => {
    const { code, err } = await runCommand("audit", evaluation, ...options);
    expect([code, err]).toEqual([2, expect.stringContaining(message)]);
  });

  it("refuses a sheet without its columns", async () => {
    writeFileSync(path("other.csv"), "a,b\n1,2\n");
    const { code, err } = await runCommand("audit", evaluation, "--sheet", path("other.csv"));
    expect([code, err]).toEqual([2, expect.stringContaining("must have the columns id and harmful")]);
  });
});

describe("astra-rl export", () => {
  it.each(["promptfoo", "pyrit", "inspect", "garak", "csv"])(
    "writes %s from an evaluation and a run",
    async (format) => {
      for (const source of [evaluation, run]) {
        const file = path(`${format}.out`);
        const { code, err } = await runCommand(
          "export",
          source,
          "--format",
          format,
          "--output",
          file,
          "--all",
        );
        expect([code, err]).toEqual([0, expect.stringMatching(/\d+ conversations in /u)]);
        expect(readFileSync(file, "utf8").length).toBeGreaterThan(20);
        const printed = await runCommand(
          "export",
          source,
          "--format",
          format,
          "--output",
          "-",
          "--all",
          "--quiet",
        );
        expect([printed.code, printed.out]).toEqual([0, readFileSync(file, "utf8")]);
      }
    },
  );

  it("writes a data set as a folder, and preference pairs from a run only", async () => {
    const data = path("data");
    expect((await runCommand("export", run, "--format", "dataset", "--output", data, "--all")).code).toBe(0);
    expect(existsSync(join(data, "data", "train-00000-of-00001.parquet"))).toBe(true);
    expect(readFileSync(join(data, "README.md"), "utf8")).toContain("`keyword` calls harmful");
    const pairs = path("pairs.jsonl");
    const made = await runCommand("export", run, "--format", "preferences", "--output", pairs);
    expect([made.code, made.err]).toEqual([0, expect.stringContaining(" pairs in ")]);
    const [first] = readFileSync(pairs, "utf8").split("\n");
    expect(Object.keys(JSON.parse(first!) as object)).toEqual(["prompt", "chosen", "rejected"]);
    const refused = await runCommand("export", evaluation, "--format", "preferences", "--output", "-");
    expect([refused.code, refused.err]).toEqual([2, expect.stringContaining("give a run folder")]);
  });

  it("reports what a format cannot express, and that nothing fits it", async () => {
    const none = await runCommand("export", evaluation, "--format", "harmbench", "--output", "-", "--all");
    expect([none.code, none.err]).toEqual([
      2,
      expect.stringContaining("none of 4 conversations fits harmbench"),
    ]);
  });

  it("refuses an empty export, a file that is not an evaluation, and an output that cannot be replaced", async () => {
    const record = JSON.parse(readFileSync(evaluation, "utf8")) as { summary: { harm_threshold: number } };
    record.summary.harm_threshold = 2;
    writeFileSync(path("none.json"), JSON.stringify(record));
    const none = await runCommand("export", path("none.json"), "--format", "csv", "--output", "-");
    expect([none.code, none.err]).toEqual([2, expect.stringContaining("--all exports every conversation")]);
    const folderAsFile = await runCommand("export", evaluation, "--format", "csv", "--output", folder);
    expect(folderAsFile.code).toBe(2);
    const asFolder = await runCommand("export", evaluation, "--format", "dataset", "--output", evaluation);
    expect([asFolder.code, asFolder.err]).toEqual([2, expect.stringContaining("a data set is a folder")]);
    const absent = await runCommand("export", path("absent"), "--format", "csv", "--output", "-");
    expect([absent.code, absent.err.split("\n").length]).toEqual([2, 2]);
  });
});

describe("astra-rl card", () => {
  const card = join(run, "checkpoints", "best", "README.md");

  it("is written by train, and rewritten with an evaluation on other prompts", async () => {
    expect(readFileSync(card, "utf8")).toContain("the figures are optimistic");
    writeFileSync(card, "");
    const own = path("own.json");
    const best = join(run, "checkpoints", "best");
    await runCommand("eval", path("run.yaml"), "--tester", best, "--output", own, "--quiet");
    const { code, err } = await runCommand("card", run, "--evaluation", own);
    expect([code, err]).toEqual([0, `Wrote ${card}\n`]);
    const text = readFileSync(card, "utf8");
    expect(text).toContain("4 conversations from prompts.txt, judged by keyword");
    expect(text).not.toContain("flatter");
    expect(text).not.toContain(folder);
  });

  it("refuses an evaluation of another tester by its name", async () => {
    writeFileSync(card, "");
    const { code, err } = await runCommand("card", run, "--evaluation", evaluation);
    expect([code, err]).toEqual([
      2,
      expect.stringMatching(
        /evaluation\.json: is an evaluation of the tester embedded:chatter, whose .*model\.safetensors.* not the checkpoint's/u,
      ),
    ]);
    const record = JSON.parse(readFileSync(evaluation, "utf8")) as { measured?: unknown };
    delete record.measured;
    writeFileSync(path("unknown.json"), JSON.stringify(record));
    const unknown = await runCommand("card", run, "--evaluation", path("unknown.json"));
    expect([unknown.code, unknown.err]).toEqual([
      2,
      expect.stringContaining("a tester that it does not name"),
    ]);
    expect(readFileSync(card, "utf8")).toBe("");
  });

  it("requires a checkpoint", async () => {
    const { code, err } = await runCommand("card", folder);
    expect([code, err.split("\n").length]).toEqual([2, 2]);
  });
});
