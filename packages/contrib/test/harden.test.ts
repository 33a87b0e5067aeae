import { cpSync, existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { liveTensors } from "@astra-rl/torch";
import { beforeAll, describe, expect, it } from "vitest";
import { parseEvaluationRecord, parseGraphLines, stringifyEvaluation } from "@astra-rl/records";
import { temporaryFolder } from "../../method/test/training/temporary-folder.js";
import { runCommand } from "../../astra-rl/test/support/run-command.js";

const folder = temporaryFolder();
const path = (...parts: string[]) => join(folder, ...parts);

beforeAll(async () => {
  writeFileSync(
    path("run.yaml"),
    `
seed: 1
models: { tester: embedded:chat, target: embedded:chat }
prompts: { train: embedded, dev: embedded, test: embedded }
sampler: { width: 2, depth: 2 }
scorer: { type: keyword, entries: [{ term: only, weight: 1 }, { term: sometimes, weight: 1 }, { term: thanks, weight: 1 }] }
generation: { tester: { maxNewTokens: 24 }, target: { maxNewTokens: 24 } }
reward: { terms: [{ type: harm, of: response, weight: 1 }] }
training: { trainingSteps: 16, schedule: constant, evaluateEvery: 8, numEpisodesPerExperience: 8, batchSize: 24, learningRate: 4.0e-4 }
evaluation: { rollouts: 48 }
`,
  );
  await runCommand("train", path("run.yaml"), "--run-dir", path("run"), "--quiet");
  // The same run, whose further testers and evaluations are smaller.
  cpSync(path("run"), path("small"), { recursive: true });
  const file = path("small", "config.resolved.yaml");
  const text = readFileSync(file, "utf8");
  const smaller = text
    .replace("rollouts: 48", "rollouts: 16")
    .replace("trainingSteps: 16", "trainingSteps: 8");
  writeFileSync(file, smaller);
}, 120_000);

describe("astra-rl harden", () => {
  it("trains the target on found attacks, and reports the remaining success and side effects", async () => {
    const live = liveTensors();
    const options = ["--output", path("hard"), "--no-new-tester", "--quiet"];
    const { code, out, err } = await runCommand("harden", path("run"), ...options);
    expect([code, err]).toEqual([0, ""]);
    expect(liveTensors()).toBe(live);
    const [before, after] = ["before", "after"].map((name) =>
      parseEvaluationRecord(readFileSync(path("hard", `${name}.json`), "utf8")),
    );
    expect(before!.summary.success_rate!).toBeGreaterThan(0.15);
    expect(after!.summary.success_rate!).toBeLessThan(before!.summary.success_rate! / 3);
    // The same tester and prompts; another target.
    expect(after!.measured!.tester).toEqual(before!.measured!.tester);
    expect(after!.measured!.target.model).toBe(path("hard", "target", "checkpoints", "best"));
    expect(out).toMatch(/^attack success rate +\d/mu);
    const [, one, other] = /harmless answers went from (\d+\.\d+) to (\d+\.\d+)/u.exec(out)!;
    expect(Number(other) / Number(one)).toBeLessThan(1.05);
    expect(out).toContain("No new tester was trained");
    // It is a separate adapter: the original target is unchanged.
    expect(existsSync(path("hard", "target", "checkpoints", "best", "adapter_config.json"))).toBe(true);
    // The roles are swapped, and the target is silent.
    const [graph] = parseGraphLines(readFileSync(path("hard", "target", "graphs.jsonl"), "utf8"));
    expect(graph!.children.every(({ response }) => response === "…")).toBe(true);
    expect(graph!.promptMessages!.at(-1)![0]).toBe("target");
    const changed = statSync(path("hard", "before.json")).mtimeMs;
    const again = await runCommand("harden", path("run"), ...options);
    expect([again.code, again.out]).toEqual([0, out]);
    expect(statSync(path("hard", "before.json")).mtimeMs).toBe(changed);
  }, 120_000);

  it("calls the trained model the hardened target, without a tester's card", async () => {
    expect(existsSync(path("hard", "target", "checkpoints", "last"))).toBe(true);
    expect(existsSync(path("hard", "target", "checkpoints", "best", "README.md"))).toBe(false);
    const steps = ["--set", "training.trainingSteps=1", "--set", "training.evaluateEvery=1"];
    const { err } = await runCommand(
      "train",
      path("hard", "harden.yaml"),
      "--run-dir",
      path("seen"),
      ...steps,
    );
    expect(err).toContain("checkpoints/last: the hardened target, in Hugging Face format");
    expect(err).not.toMatch(/the tester, in|--tester/u);
    // The roles are swapped: what its silent partner says is no evidence.
    expect(err).not.toMatch(/No conversation led|Doubtful|the choice of best|success/u);
    expect(err).toMatch(/^step 1\/1 .* · harmful answers \d/mu);
  });

  it("trains in rounds: each uses the attacks of all testers, and a tester that finds too few ends them", async () => {
    const options = ["--output", path("rounds"), "--rounds", "2", "--steps", "2", "--quiet"];
    const { code, out, err } = await runCommand("harden", path("small"), ...options);
    expect([code, err]).toEqual([0, ""]);
    // Two steps harden little, so that the new tester finds enough for a second round.
    const attacks = (at: string) => readFileSync(path(at, "attacks-train.jsonl"), "utf8").trim().split("\n");
    const [first, second] = [attacks("rounds"), attacks("rounds/round-2")];
    expect(second.length).toBeGreaterThan(first.length);
    // The adapters are beside each other, not on top of each other.
    const adapter = readFileSync(
      path("rounds", "round-2", "target", "checkpoints", "best", "adapter_config.json"),
      "utf8",
    );
    expect(adapter).not.toContain(path("rounds"));
    expect(out).toMatch(/^Round 1\n[^]*^Round 2\n/mu);
    // The second round starts where the first one ended.
    const [one, two] = out.split("Round 2");
    const rates = (text: string) => /^attack success rate +(.+)$/mu.exec(text)![1]!.split(/ {2,}/u);
    expect(rates(two!)[0]).toBe(rates(one!)[2]);
    const refused = await runCommand("harden", path("small"), ...options, "--no-new-tester");
    expect([refused.code, refused.err]).toEqual([2, expect.stringContaining("--rounds")]);
  }, 240_000);

  it("trains an adapter target further, as an adapter on the same base", async () => {
    cpSync(path("small"), path("run-adapter"), { recursive: true });
    const hardened = path("hard", "target", "checkpoints", "best");
    const file = path("run-adapter", "config.resolved.yaml");
    const text = readFileSync(file, "utf8");
    writeFileSync(file, text.replace(/^( +)target: embedded:chat$/mu, `$1target: ${hardened}`));
    expect(readFileSync(file, "utf8")).not.toBe(text);
    const options = ["--output", path("again"), "--no-new-tester", "--steps", "1", "--quiet"];
    const { code, err } = await runCommand("harden", path("run-adapter"), ...options);
    expect([code, err]).toEqual([0, ""]);
    const settings = (of: string): unknown =>
      JSON.parse(readFileSync(path(of, "target", "checkpoints", "last", "adapter_config.json"), "utf8"));
    expect(settings("again")).toEqual(settings("hard"));
  }, 120_000);

  it("shows no figures of a target that has changed", async () => {
    const file = path("hard", "after.json");
    const text = readFileSync(file, "utf8");
    const record = parseEvaluationRecord(text);
    const { files } = record.measured!.target;
    files["adapter_model.safetensors"] = "0".repeat(64);
    writeFileSync(file, stringifyEvaluation(record));
    const { code, err } = await runCommand(
      "harden",
      path("run"),
      "--output",
      path("hard"),
      "--no-new-tester",
      "--quiet",
    );
    writeFileSync(file, text);
    expect([code, err]).toEqual([
      2,
      expect.stringContaining("after.json: its target has been trained since"),
    ]);
  }, 60_000);

  it("the target reads found attacks in training exactly as it read them before", async () => {
    const rows = readFileSync(path("hard", "attacks-train.jsonl"), "utf8").trim().split("\n");
    const { messages } = JSON.parse(rows[0]!) as { messages: { role: string; content: string }[] };
    // "assistant" is the role that is not trained here: the tester of the run.
    expect(messages.at(-1)!.role).toBe("assistant");
    expect(messages[0]!.content).toMatch(/\n\n- /u);
  });

  it("declares its requirements", async () => {
    const refused = async (...args: string[]) => {
      const { code, err } = await runCommand("harden", ...args);
      expect([code, err.trim().split("\n").length]).toEqual([2, 1]);
      return err;
    };
    expect(await refused(path("absent"), "--output", path("x"))).toContain("absent");
    expect(await refused(path("run"), "--output", path("x"), "--steps", "0")).toContain("at least 1");
    writeFileSync(
      path("few.yaml"),
      readFileSync(path("run.yaml"), "utf8").replace(
        /entries: \[.*\]/u,
        "entries: [{ term: zebra, weight: 1 }]",
      ),
    );
    await runCommand(
      "train",
      path("few.yaml"),
      "--run-dir",
      path("few"),
      "--quiet",
      "--set",
      "training.trainingSteps=1",
      "--set",
      "training.evaluateEvery=1",
    );
    expect(await refused(path("few"), "--output", path("y"))).toContain(
      "found 0 different attacks, but at least 16",
    );
  });
});
