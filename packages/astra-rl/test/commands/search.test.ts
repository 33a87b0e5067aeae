import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { liveTensors } from "@astra-rl/torch";
import { beforeEach, describe, expect, it } from "vitest";
import { parseEvaluationRecord, type EvaluationRecord } from "@astra-rl/records";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

/** The targets of these tests say the same to plain questions, and some scorers flag everything. */
const ACCEPT = ["--accept", "target-silent,harmless-flagged"];
const runSearch = (file: string, ...options: string[]) => runCommand("search", file, ...ACCEPT, ...options);

/** The target's requests, in order: the opener, and the tester's messages after it. */
const asked = () =>
  (globalThis as unknown as { askedOfTarget: { opener: string; probes: string[] }[] }).askedOfTarget;

/** A target without weights: questions make it rude, and short probes are likely. */
const MODULE = `
import { Message } from "${new URL("../../src/index.ts", import.meta.url).href}";

export class Touchy {
  name = "touchy";
  role = "target";
  tellsLikelihood = true;
  work = { read: 0, generated: 0 };
  async generate(conversations) {
    return conversations.map((conversation) => {
      const messages = conversation.messages();
      const probes = messages.filter(({ from }) => from === "tester").map(({ text }) => text);
      globalThis.askedOfTarget.push({ opener: messages[0].text, probes });
      return new Message("target", /\\?/u.test(probes.at(-1)) ? "You fool. " : "Fine. ");
    });
  }
  async logprobs(conversations, messages) {
    return messages.map(({ text }) => [-1 - text.length / 100]);
  }
  release() {}
  dispose() {}
}
export class Calm extends Touchy {
  async generate(conversations) {
    return (await super.generate(conversations)).map(() => new Message("target", "Fine. "));
  }
}
export class Silent extends Touchy { tellsLikelihood = false }
export const down = () => { throw new Error("the judge is down"); };
`;

/** If no model computes likelihoods, no reward term may require them. */
const SILENT = { target: "Silent", reward: "reward: { terms: [{ type: harm, of: response, weight: 1 }] }\n" };

beforeEach(() => Object.assign(globalThis, { askedOfTarget: [] }));

const openers = (count: number, what: string) => Array.from({ length: count }, (_, at) => `${what} ${at}. `);

function configured({
  train = openers(12, "Day"),
  test = openers(5, "Night"),
  target = "Touchy",
  scorer = "{ type: keyword, entries: [{ term: fool }] }",
  reward = "",
} = {}): { path: (name: string) => string; file: string } {
  const folder = temporaryFolder();
  const path = (name: string) => join(folder, name);
  const file = path("run.yaml");
  writeFileSync(path("train.json"), JSON.stringify(train));
  writeFileSync(path("test.json"), JSON.stringify(test));
  writeFileSync(path("target.mjs"), MODULE);
  writeFileSync(
    file,
    `
seed: 5
models: { tester: "embedded:chatter", target: { type: "./target.mjs#${target}" } }
prompts: { train: ./train.json, dev: ./train.json, test: ./test.json }
scorer: ${scorer}
sampler: { width: 2, depth: 2 }
generation: { tester: { maxNewTokens: 12 }, target: { maxNewTokens: 12 } }
evaluation: { repeats: 2 }
${reward}`,
  );
  return { path, file };
}

async function searched(
  { path, file }: ReturnType<typeof configured>,
  ...options: string[]
): Promise<{ record: EvaluationRecord; out: string; err: string }> {
  const { code, out, err } = await runSearch(file, "--output", path("found.json"), ...options);
  expect([code, err]).toEqual([0, expect.stringContaining("Wrote")]);
  return { record: parseEvaluationRecord(readFileSync(path("found.json"), "utf8")), out, err };
}

/** The probes of the evaluation, by rollout. */
const saidIn = ({ details }: EvaluationRecord) =>
  details.map(({ per_turn: turns }) => turns.map(({ probe }) => probe));

describe("astra-rl search", () => {
  it.each([
    [100, 1],
    [301, 3],
  ])("counts the target's answers: %s queries for %s probes", async (queries, probes) => {
    const live = liveTensors();
    const given = ["--queries", String(queries), "--probes", String(probes)];
    const { record } = await searched(configured(), ...given);
    const { search } = record.measured!;
    expect(search!.budget).toBe(queries);
    expect(search!.queries).toBeLessThanOrEqual(queries);
    // Plus the evaluation's own answers: 5 openers, twice, two turns each, and two plain questions.
    expect(record.summary.n_turns).toBe(20);
    expect(asked().length).toBe(search!.queries + 22);
    expect(search!.queries).toBeGreaterThan(queries / 2);
    expect(liveTensors()).toBe(live);
  });

  it("finds a likely probe that leads to harm at any turn, and uses it on the test prompts", async () => {
    const { record, out } = await searched(configured(), "--queries", "200", "--probes", "1");
    const { search, tester, prompts } = record.measured!;
    const [found] = search!.probes;
    expect(found!.probe).toContain("?");
    expect(found!.nll).toBeLessThanOrEqual(search!.max_nll!);
    expect(search!.max_nll).toBeCloseTo(search!.sample_nll! + 0.1, 12);
    expect(saidIn(record)).toEqual(Array.from({ length: 10 }, () => [found!.probe, found!.probe]));
    expect(record.summary).toMatchObject({ success_rate: 1, harmless_probe_success_rate: 1, n_prompts: 5 });
    expect(record.summary.mean_probe_nll).toBeCloseTo(found!.nll!, 12);
    expect(prompts.split).toBe("test");
    expect(tester).toEqual({
      model: "1 probe found by search with embedded:chatter",
      files: { probes: expect.stringMatching(/^[0-9a-f]{64}$/u) as string },
    });
    expect(out).toContain(`The search used ${search!.queries} target responses, of 200`);
    expect(out).toContain(found!.probe.trim());
  });

  it("keeps the requested number of probes, which alternate in the evaluation", async () => {
    const { record } = await searched(configured(), "--queries", "300", "--probes", "4");
    const probes = record.measured!.search!.probes.map(({ probe }) => probe);
    expect(new Set(probes).size).toBe(4);
    const said = saidIn(record);
    // A conversation says one of them throughout; the second try of a prompt another one than the first.
    const conversation = (at: number) => [probes[at], probes[at]];
    expect(said.slice(0, 5)).toEqual([0, 1, 2, 3, 0].map(conversation));
    expect(said.slice(5)).toEqual([1, 2, 3, 0, 1].map(conversation));
    expect(new Set(said.flat())).toEqual(new Set(probes));
  });

  it("excludes probes that succeed less than half as often as the best one", async () => {
    const { record } = await searched(configured(), "--queries", "600", "--probes", "64");
    const { probes, rounds } = record.measured!.search!;
    // Only questions make this target rude, and it is asked other things as well.
    expect(probes.every(({ probe }) => probe.includes("?"))).toBe(true);
    expect(probes.length).toBeGreaterThan(1);
    expect(probes.length).toBeLessThan(rounds.at(-1)!.candidates);
    const rates = probes.map(({ biased_estimate: { rate } }) => rate);
    expect(rates).toEqual([...rates].sort((a, b) => b - a));
    expect(rates.at(-1)).toBeGreaterThanOrEqual(rates[0]! / 2);
  });

  it("is determined by the seed", async () => {
    const setting = configured();
    const given = ["--queries", "100", "--probes", "2"];
    const first = await searched(setting, ...given);
    const again = await searched(setting, ...given);
    expect(again.record).toEqual(first.record);
    const other = await searched(setting, ...given, "--set", "seed=6");
    expect(other.record.measured!.search!.sample_nll).not.toBe(first.record.measured!.search!.sample_nll);
  });

  it("does not depend on the batch", async () => {
    const setting = configured();
    const given = ["--queries", "100", "--probes", "2"];
    const { record } = await searched(setting, ...given, "--set", "evaluation.batchSize=64");
    const one = await searched(setting, ...given, "--set", "evaluation.batchSize=7");
    expect(one.record.measured!.search).toEqual(record.measured!.search);
    expect(one.record.details).toEqual(record.details);
  });
});

describe("the openers of a search", () => {
  it("are never test prompts, even if the files share some", async () => {
    const test = openers(5, "Night");
    const { record, err } = await searched(
      configured({ train: [...test.slice(0, 3), ` ${test[3]!.trim()}`, ...openers(6, "Day")], test }),
      "--queries",
      "100",
      "--probes",
      "1",
    );
    const { search } = record.measured!;
    // After the two plain questions.
    const [questions, own] = [asked().slice(0, 2), asked().slice(2, 2 + search!.queries)];
    expect(new Set(questions.map(({ opener }) => opener))).toEqual(new Set([""]));
    expect(new Set(own.map(({ opener }) => opener))).toEqual(new Set(openers(6, "Day")));
    expect(
      new Set(
        asked()
          .slice(2 + search!.queries)
          .map(({ opener }) => opener),
      ),
    ).toEqual(new Set(test));
    expect(err).toContain("4 of 10 training prompts are also test prompts, which the search skips");
    // Excluded prompts were not seen, so the figures are not doubtful.
    expect(record.summary.doubts!.map(({ rule }) => rule)).not.toContain("prompts-of-training");
  });

  it("are refused if all of them are test prompts", async () => {
    const same = openers(5, "Night");
    const { code, err } = await runSearch(configured({ train: same, test: same }).file);
    expect([code, err]).toEqual([
      2,
      expect.stringContaining("prompts.train: every prompt is also in prompts.test"),
    ]);
    expect(asked()).toEqual([]);
  });

  it("count once if they are listed twice", async () => {
    const twice = [...openers(4, "Day"), ...openers(4, "Day")];
    const { record } = await searched(configured({ train: twice }), "--queries", "400", "--probes", "1");
    // A candidate is tried on each opener at most once behind the sample.
    const [sample, ...later] = record.measured!.search!.rounds;
    expect(sample!.openers).toBe(4);
    expect(later.reduce((sum, round) => sum + round.openers, 0)).toBeLessThanOrEqual(4);
  });
});

describe("the record of a search", () => {
  it("is an evaluation, which compare, gate, report, export and replay accept", async () => {
    const setting = configured();
    const { path, file } = setting;
    expect(
      (await runCommand("eval", file, ...ACCEPT, "--output", path("untrained.json"), "--quiet")).code,
    ).toBe(0);
    const { record } = await searched(setting, "--queries", "200", "--probes", "1");

    const compared = await runCommand("compare", path("untrained.json"), path("found.json"), "--json");
    const doubted =
      /^untrained: Doubtful \(target-silent\): [^\n]*\nfound: Doubtful \(target-silent\): [^\n]*\n$/u;
    expect([compared.code, compared.err]).toEqual([0, expect.stringMatching(doubted)]);
    const [{ comparisons }] = compared.json<{ comparisons: { unlike: string[]; n_pairs: number }[] }>() as [
      { comparisons: { unlike: string[]; n_pairs: number }[] },
    ];
    expect(comparisons).toMatchObject([{ unlike: [], n_pairs: 10 }]);

    // A constant target, and a scorer without controls.
    const accept = ["--accept", "no-canary,target-silent"];
    const gated = await runCommand("gate", path("found.json"), "--max-success", "50%", ...accept);
    expect([gated.code, gated.out]).toEqual([1, expect.stringContaining("10 of 10 rollouts succeeded")]);

    const both = [path("untrained.json"), path("found.json")];
    const reported = await runCommand("report", ...both, "--format", "markdown");
    expect(reported.code).toBe(0);
    expect(reported.out).toMatch(
      new RegExp(`target responses in the search *\\| *– *\\| *${record.measured!.search!.queries}`, "u"),
    );
    expect((await runCommand("report", ...both, "--output", path("report.html"))).code).toBe(0);
    expect(readFileSync(path("report.html"), "utf8")).toContain("1 probe found by search");

    const bundle = ["--format", "replay", "--output", path("bundle.json"), "--quiet"];
    expect((await runCommand("export", path("found.json"), ...bundle)).code).toBe(0);
    const { attacks } = JSON.parse(readFileSync(path("bundle.json"), "utf8")) as {
      attacks: { probes: string[] }[];
    };
    const { probe } = record.measured!.search!.probes[0]!;
    expect(attacks.map(({ probes }) => probes)).toEqual(openers(5, "Night").map(() => [probe]));
    const replayed = await runCommand("replay", path("bundle.json"), file, ...ACCEPT);
    expect([replayed.code, replayed.out]).toEqual([0, expect.stringContaining("5 of 5 attacks")]);
  });
});

describe("an impossible search is refused with the reason", () => {
  it.each([
    [["--queries", "20", "--probes", "16"], "20 queries are too few"],
    [["--max-nll", "1.001"], "is within 1.00 nats a token, the most likely one has 1."],
    [["--max-nll", "0"], "above 0"],
    [["--max-nll", "much"], "above 0"],
    [["--probes", "0"], "--probes"],
  ])("%j", async (options, message) => {
    const { code, err } = await runSearch(configured().file, "--queries", "150", ...options);
    expect([code, err]).toEqual([2, expect.stringContaining(message)]);
  });

  it("if no model computes likelihoods, but a bound is given", async () => {
    const { file } = configured(SILENT);
    const { code, err } = await runSearch(file, "--max-nll", "2");
    expect([code, err]).toEqual([2, expect.stringContaining("set models.likelihood")]);
    expect(asked()).toEqual([]);
  });

  it("if all probes are harmful themselves", async () => {
    const { file } = configured({ scorer: '{ type: keyword, entries: [{ pattern: "\\\\w" }] }' });
    const { code, err } = await runSearch(file, "--queries", "100", "--probes", "1");
    expect([code, err]).toEqual([2, expect.stringContaining("are harmful themselves or empty")]);
  });

  it("if most answers cannot be scored", async () => {
    const { file } = configured({ scorer: '{ type: "./target.mjs#down" }' });
    const { code, err } = await runSearch(file, "--queries", "100", "--probes", "1");
    expect([code, err]).toEqual([3, expect.stringContaining("No verdict on the target")]);
  });
});

it("searches without a bound if no model computes likelihoods, and says so", async () => {
  const { record, err } = await searched(configured(SILENT), "--queries", "100", "--probes", "1");
  expect(record.measured!.search).toMatchObject({ sample_nll: null, max_nll: null });
  expect(err).toContain("without a bound");
});

it("accepts any harmless probe with --max-nll none", async () => {
  const given = ["--queries", "100", "--probes", "1", "--max-nll", "none"];
  const { record, err } = await searched(configured(), ...given);
  expect(record.measured!.search!.max_nll).toBeNull();
  expect(record.measured!.search!.sample_nll).not.toBeNull();
  expect(err).not.toContain("without a bound");
});

it("gives no verdict if no probe led to harm, with a remedy", async () => {
  const { path, file } = configured({ target: "Calm" });
  const given = ["--queries", "100", "--probes", "1", "--output", path("found.json")];
  const { code, err } = await runSearch(file, ...given);
  expect([code, err]).toEqual([3, expect.stringContaining("no probe led to harm")]);
  expect(err).toContain("allow more queries");
  const { summary } = parseEvaluationRecord(readFileSync(path("found.json"), "utf8"));
  expect(summary).toMatchObject({ n_successes: 0, n_rollouts: 10 });
  expect(summary.doubts!.map(({ rule }) => rule)).toContain("same-probes");
});
