import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { hostname } from "node:os";
import { join } from "node:path";
import Ajv from "ajv";
import { errorRateOfLook, summarize } from "@astra-rl/analysis";
import { canaryOf, RunLock, type EvaluationDetail, type EvaluationRecord } from "@astra-rl/records";
import { describe, expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { gateJUnit, gateMarkdown, gateOf, gateSarif, gateSentence, Ledger } from "../../src/index.js";

const HOSTILE = "[here](https://example.com) {0} </failure> ]]> \u001b[31m";

/** Rollouts from a prompt each, of which the first ones lead to harm. */
function recordOf(n: number, harmful: number): EvaluationRecord {
  const details = Array.from({ length: n }, (_, at): EvaluationDetail => {
    const harm = at < harmful ? 1 : 0;
    return {
      overall: {
        num_turns: 1,
        num_errors: 0,
        mean_reward: null,
        mean_probe_harm: 0,
        mean_response_harm: harm,
        first_harmful_probe_turn: null,
        first_harmful_response_turn: harm === 1 ? 1 : null,
        harmless_probe_success: harm === 1,
        goal: at % 2 === 0 ? `g${at}` : `h${at}`,
      },
      per_turn: [
        {
          turn: 1,
          reward: null,
          probe_harm: 0,
          response_harm: harm,
          context: `prompt ${at}`,
          probe: `probe ${at} ${HOSTILE}`,
          response: `answer ${at}`,
          probe_nll: 1,
          probe_tokens: 3,
          error: null,
        },
      ],
    };
  });
  const goals = details.map(({ overall: { goal: id } }) => ({
    id: id!,
    text: `do ${id}`,
    ...(id!.startsWith("h") ? { tags: ["mitre-atlas/AML.T0054"] } : {}),
  }));
  const controls = { n: 2, n_found: 2, n_harmless: 1, n_harmless_flagged: 0 };
  const said = ["one", "two"].map((question) => ({
    question,
    response: `number ${question}ly`,
    error: null,
  }));
  return {
    measured: {
      target: { model: "a target", files: {} },
      tester: { model: "a tester", files: {} },
      scorer: { type: "keyword" },
      tags: ["owasp-llm-2025/LLM01:2025", "nist-ai-600-1/2.3"],
    },
    goals,
    summary: { ...summarize(details, { goals, controls }), doubts: [], canary: canaryOf(said) },
    details,
    spending: {
      target: { calls: 1024, input_tokens: 80_000, output_tokens: 9000, dollars: 0.42 },
      scorer: { calls: 64, input_tokens: 5000, output_tokens: 600, dollars: null },
    },
    version: 2,
  } as unknown as EvaluationRecord;
}

const require = createRequire(import.meta.url);
const schema = JSON.parse(
  readFileSync(
    join(require.resolve("@microsoft/jest-sarif"), "..", "schemas", "sarif-2.1.0-rtm.5.json"),
    "utf8",
  ),
) as object;
const ajv = new Ajv({ schemaId: "id", meta: false });
ajv.addMetaSchema(require("ajv/lib/refs/json-schema-draft-04.json") as object);
const isSarif = ajv.compile({ ...schema, $schema: "http://json-schema.org/draft-04/schema#" });

interface Sarif {
  runs: [
    {
      results: { ruleId: string; kind: string; level: string; message: { text: string }; taxa?: object[] }[];
      taxonomies: { name: string; version: string; taxa: { id: string; name: string }[] }[];
    },
  ];
}

describe("SARIF of a gate", () => {
  it.each([
    ["passed", 100, 0, "pass", "none"],
    ["failed", 100, 20, "fail", "error"],
    ["inconclusive", 100, 4, "review", "none"],
  ] as const)("is valid where it %s", (verdict, n, harmful, kind, level) => {
    const record = recordOf(n, harmful);
    const gate = gateOf(record, 0.05, 0.95, { maxOverRefusal: null });
    expect(gate.verdict).toBe(verdict);
    const log = JSON.parse(gateSarif(gate, record, 3, "out dir/evaluation.json")) as Sarif;
    expect([isSarif(log), isSarif.errors]).toEqual([true, null]);
    const [{ results }] = log.runs;
    expect(results[0]).toMatchObject({ ruleId: "success-rate", kind, level });
    expect(results).toHaveLength(1 + (verdict === "passed" ? 0 : 3));
    // Texts of models are in no message.
    for (const { message } of results) expect(message.text).not.toContain("example.com");
    expect(JSON.stringify(results[0])).toContain("out%20dir/evaluation.json");
  });

  it("names the entries of risk lists, of goals where they have other ones", () => {
    const record = recordOf(100, 20);
    const log = JSON.parse(gateSarif(gateOf(record, 0.05, 0.95), record, 2, "e.json")) as Sarif;
    const [{ results, taxonomies }] = log.runs;
    expect(results[1]!.taxa).toEqual([
      { id: "LLM01:2025", toolComponent: { name: "owasp-llm-2025" } },
      { id: "2.3", toolComponent: { name: "nist-ai-600-1" } },
    ]);
    expect(results[2]!.taxa).toEqual([{ id: "AML.T0054", toolComponent: { name: "mitre-atlas" } }]);
    expect(taxonomies).toMatchObject([
      { name: "owasp-llm-2025", version: "2025", taxa: [{ id: "LLM01:2025", name: "Prompt Injection" }] },
      { name: "mitre-atlas", taxa: [{ id: "AML.T0054", name: "LLM Jailbreak" }] },
      { name: "nist-ai-600-1", taxa: [{ id: "2.3", name: "Dangerous, Violent, or Hateful Content" }] },
    ]);
  });
});

it("JUnit and Markdown say what calls took, and the tags", () => {
  const record = recordOf(100, 20);
  const gate = gateOf(record, 0.05, 0.95);
  const junit = gateJUnit(gate, record, 1);
  expect(junit).toContain('<property name="target.calls" value="1024"/>');
  expect(junit).toContain('<property name="target.dollars" value="0.42"/>');
  expect(junit).toContain('<property name="scorer.output_tokens" value="600"/>');
  expect(junit).not.toContain("scorer.dollars");
  expect(junit).toContain('<property name="verdict" value="failed"/>');
  const markdown = gateMarkdown(gate, record, 1);
  expect(markdown).toMatch(/target: 1,024 calls, 80,000 tokens read, 9,000 generated, \\?\$0\.4200/u);
  expect(markdown).toContain("LLM01:2025 Prompt Injection");
});

describe("a ledger of looks", () => {
  const folder = temporaryFolder();
  const look = (path: string, text: string, limits: unknown = { maxSuccess: 0.05 }, least = 1) =>
    Ledger.hold(path, 0.95, (ledger) => {
      const number = ledger.numberOf(text, limits, least);
      const error_rate = errorRateOfLook(0.05, number);
      ledger.add(text, limits, { look: number, error_rate, verdict: "passed" });
      return number;
    });

  it("counts each evaluation and each limit once", async () => {
    const path = join(folder, "looks.jsonl");
    expect([await look(path, "a"), await look(path, "b"), await look(path, "a")]).toEqual([1, 2, 1]);
    expect(await look(path, "a", { maxSuccess: 0.1 })).toBe(3);
    expect([await look(path, "c", {}, 10), await look(path, "d", {}, 5)]).toEqual([10, 11]);
    expect(readFileSync(path, "utf8").trim().split("\n")).toHaveLength(5);
  });

  it("is refused with another confidence, out of order, or damaged", async () => {
    const path = join(folder, "other.jsonl");
    await look(path, "a");
    await look(path, "b");
    expect(() => new Ledger(path, 0.9)).toThrow(breaking("other-confidence", "line 1"));
    const lines = readFileSync(path, "utf8").trim().split("\n");
    writeFileSync(path, `${lines.reverse().join("\n")}\n`);
    expect(() => new Ledger(path, 0.95)).toThrow(breaking("damaged-ledger", "line 2"));
    writeFileSync(path, `${lines[0]}\n{"look":`);
    expect(() => new Ledger(path, 0.95)).toThrow(breaking("not-json", "line 2"));
  });

  it("waits for a process that holds it, and names one that keeps it for too long", async () => {
    const path = join(folder, "held.jsonl");
    const link = join(folder, "link.jsonl");
    await look(path, "a");
    symlinkSync(path, link);
    const lock = RunLock.take(path, { kind: "ledger" });
    const waiting = look(link, "b");
    const impatient = Ledger.hold(link, 0.95, () => "a look", { patience: 100 });
    await expect(impatient).rejects.toThrow(breaking("lock-held", `process ${process.pid} on`));
    lock.release();
    expect(await waiting).toBe(2);
    expect(readdirSync(folder).filter((name) => name.startsWith("held"))).toEqual(["held.jsonl"]);
  });

  it("says who holds it, and for how long it was waited for", async () => {
    const path = join(folder, "sentence.jsonl");
    const lock = RunLock.take(path, { kind: "ledger" });
    await expect(Ledger.hold(path, 0.95, () => "a look", { patience: 1000 })).rejects.toThrow(
      `${path}: process ${process.pid} on ${hostname()} is using this ledger; wait for it, or stop it (waited 1 s for it)`,
    );
    lock.release();
  });

  it("is taken over from a process that was killed with it", async () => {
    const path = join(folder, "left.jsonl");
    const built = new URL("../../../records/dist/run-folder/run-lock.js", import.meta.url).href;
    const script = `import { RunLock } from "${built}"; RunLock.take(${JSON.stringify(path)}, { kind: "ledger" }); process.kill(process.pid, "SIGKILL")`;
    const { signal } = spawnSync(process.execPath, ["--input-type=module", "-e", script]);
    expect([signal, readdirSync(folder).includes("left.jsonl.lock")]).toEqual(["SIGKILL", true]);
    const lines: string[] = [];
    await Ledger.hold(path, 0.95, () => null, { onTakeover: (line) => lines.push(line) });
    expect(lines).toEqual([expect.stringMatching(/left\.jsonl: taking over the lock of process \d+ /u)]);
    expect(readdirSync(folder).filter((name) => name.startsWith("left"))).toEqual([]);
  });

  it("that another process took over in the meantime is not written", async () => {
    const path = join(folder, "lost.jsonl");
    const lost = Ledger.hold(path, 0.95, (ledger) => {
      rmSync(`${path}.lock`);
      ledger.add("a", {}, { look: 1, error_rate: 0.025, verdict: "passed" });
    });
    await expect(lost).rejects.toThrow(breaking("folder-moved", "its lost.jsonl.lock was deleted"));
    expect(existsSync(path)).toBe(false);
  });

  it("makes later looks stricter, which the sentence says", () => {
    const record = recordOf(60, 0);
    expect(gateOf(record, 0.05, 0.95)).toMatchObject({ verdict: "passed" });
    const gate = gateOf(record, 0.05, 0.95, { look: 2 });
    expect(gate).toMatchObject({
      verdict: "inconclusive",
      look: { number: 2, error_rate: expect.closeTo(0.05 / 6, 12) as number },
    });
    expect(gateSentence(gate)).toContain("look 2: all together keep 95.0 %");
    // The next look needs ln(0.05/12)/ln(0.95) = 106.8.
    expect(gate.n_more).toBe(107 - 60);
  });
});
