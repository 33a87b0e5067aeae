import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { dotted, type JsonSchema } from "@astra-rl/base";
import { changedSettings, type RunSettings } from "@astra-rl/records";
import {
  configurationJsonSchema,
  parseConfiguration,
  type Configuration,
} from "../../src/configuration/index.js";
import { configurationSettings } from "../../src/run/run-identity.js";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";

// The options that a resumed run may change, listed again, so that none becomes free by mistake.
const FREE = [
  "models.graphs",
  "sampler.maxTurns",
  "prompts.test",
  "prompts.goals.test",
  "training.trainingSteps",
  "training.evaluateEvery",
  "training.evaluationRollouts",
  "training.checkpointEvery",
  "training.keepCheckpoints",
  "training.keepGraphs",
  "training.keepTokens",
  "training.nonFinite.stopAfter",
  "training.earlyStopping.metric",
  "training.earlyStopping.patience",
  "training.earlyStopping.mode",
  "training.earlyStopping.minDelta",
  "training.stopOn",
  "logging",
  "scorer.deadline",
  "scorer.cache.file",
  "scorer.cache.size",
  "scorer.batchSize",
  ...[
    "baseURL",
    "apiKeyEnv",
    "headers",
    "concurrency",
    "timeout",
    "retry.attempts",
    "retry.delay",
    "retry.maxWait",
    "budget.calls",
    "budget.tokens",
    "budget.dollars",
    "price.input",
    "price.output",
  ].map((key) => `scorer.${key}`),
  "evaluation.rollouts",
  "evaluation.repeats",
  "evaluation.depth",
  "evaluation.seenGoals",
  "evaluation.benign.prompts",
  "evaluation.benign.refusal",
  "evaluation.threshold",
  "evaluation.batchSize",
  "evaluation.controls",
  "evaluation.tags",
  "evaluation.secondScorer",
  "evaluation.utility",
  "modules",
];

let folder: string;
beforeAll(() => {
  folder = temporaryFolder();
});

/** Every key of the schema with the section that it stands in: one case for each form that a section may take. */
interface Key {
  path: (string | number)[];
  schema: JsonSchema;
  /** The `type` of a section on the way, where that decides whether there is such a key. */
  type: string | null;
  /** How many steps of the path lead to that section. */
  typeAt: number;
}

function* keys(
  schema: JsonSchema,
  path: Key["path"] = [],
  type: string | null = null,
  typeAt = 0,
): Generator<Key> {
  for (const form of [schema, ...(schema.oneOf ?? [])]) {
    const own = form.properties?.["type"]?.const;
    const inner = typeof own === "string" ? own : type;
    const at = typeof own === "string" ? path.length : typeAt;
    // A module's form: its options are the module's matter, and `type` is a key of the other forms as well.
    if (form.properties?.["type"] !== undefined && typeof own !== "string") continue;
    for (const [name, child] of Object.entries(form.properties ?? {})) {
      // Each term of a reward has a section of its own in the list.
      if (name === "terms") yield* keys(child.items!, [...path, "terms", 0]);
      if (child.properties !== undefined || child.oneOf !== undefined)
        yield* keys(child, [...path, name], inner, at);
      else yield { path: [...path, name], schema: child, type: inner, typeAt: at };
    }
  }
}

/** Two different values that a key may have, the first of them its default where it has one. */
function values(name: string, schema: JsonSchema): [unknown, unknown] {
  const { type, default: standard, enum: choices } = schema as Record<string, unknown>;
  if (Array.isArray(choices)) {
    const first: unknown = standard ?? choices[0];
    return [first, choices.find((choice) => choice !== first)];
  }
  if (/device$/iu.test(name)) return ["cpu", "cuda:1"];
  if (name === "entries") return [[{ term: "a" }], [{ term: "b" }]];
  if (name === "calls" && schema.items !== undefined) return [[{ tool: "a" }], [{ tool: "b" }]];
  if (name === "terms") return [[{ type: "nll", weight: 1 }], [{ type: "nll", weight: 2 }]];
  if (name === "logging") return [[{ type: "jsonl", file: "a.jsonl" }], [{ type: "console", every: 2 }]];
  const words = (term: string) => ({ type: "keyword", entries: [{ term }] });
  if (["scorer", "secondScorer", "refusal", "utility"].includes(name)) return [words("a"), words("b")];
  if (name === "scorers") {
    const weighs = schema.items!.properties !== undefined;
    const parts = weighs
      ? (term: string) => [{ scorer: words(term), weight: 1 }]
      : (term: string) => [words(term)];
    return [parts("a"), parts("b")];
  }
  if (name === "buckets") return [4096, 512];
  if (name === "categories") return [["S1"], ["S1", "S2"]];
  if (name === "points") return [[[0, 0]], [[0, 0.5]]];
  if (name === "modules") return [{}, { "/x.js": "0".repeat(64) }];
  if (name === "checkpointEvery") return ["auto", 7];
  if (name === "learningRate" && schema["anyOf"] !== undefined) return ["auto", 1e-4];
  if (name === "free") return ["start", 1.5];
  if (name === "category") return ["toxicity", "insult"];
  if (name === "tags") return ["none", ["owasp-llm-2025/LLM01:2025"]];
  if (name === "date") return ["2026-02-03", "2026-02-04"];
  if (schema.kind === "target" || name === "tester") return ["/runs/one", "/runs/two"];
  if (schema["anyOf"] !== undefined) return ["one", 2];
  if (schema["path"] === "file") return [join(folder, "one.json"), join(folder, "two.json")];
  if (type === "boolean") return [standard ?? false, !(standard ?? false)];
  if (type === "integer") return [standard ?? 5, (typeof standard === "number" ? standard : 5) + 1];
  if (type === "number") {
    const first = typeof standard === "number" ? standard : 0.5;
    return [first, first === 0 ? 0.25 : first / 2];
  }
  if (name === "baseURL") return ["http://one.example/v1", "http://two.example/v1"];
  if (name === "apiKeyEnv") return ["ONE", "TWO"];
  if (name === "headers") return [{}, { "api-key": "TWO" }];
  if (type === "string") return ["/runs/one", "/runs/two"];
  if (name === "stopOn") return [[], ["kl"]];
  if (name === "betas")
    return [
      [0.9, 0.999],
      [0.9, 0.99],
    ];
  return [["one"], ["one", "two"]];
}

const cases = [...keys(configurationJsonSchema())].filter(({ path }) => path.at(-1) !== "type");

async function configured({ path, type, typeAt }: Key, value: unknown): Promise<Configuration> {
  const content: Record<string, unknown> = {
    models: { tester: "owner/tester", target: "owner/target" },
    scorer: { type: "embedded" },
  };
  let section = content;
  for (const [index, step] of path.slice(0, -1).entries()) {
    if (type !== null && index === typeAt) section["type"] = type;
    section = (section[step] ??= typeof path[index + 1] === "number" ? [] : {}) as Record<string, unknown>;
  }
  if (type !== null) {
    // The section whose kind it is, which may hold sections of its own.
    const chosen = path.slice(0, typeAt).reduce<unknown>((inner, step) => {
      return (inner as Record<string | number, unknown>)[step];
    }, content);
    Object.assign(chosen as object, { type }, required(type, path, value));
  }
  if (path.includes(0)) section["weight"] = 1;
  if (path.includes("lora")) section["targetModules"] = ["c_attn"];
  if (path.at(-1) === "betas") section["optimizer"] = "adamw";
  if (path.includes("earlyStopping")) section["metric"] = "loss";
  if (path.includes("benign")) section["prompts"] = "/runs/benign.json";
  if (path.at(-1) === "combinedWeight") section["preset"] = "paper";
  if (path.at(-1) === "clip") section["terms"] = [{ type: "nll", weight: 1 }];
  // Last, since what a kind needs may be the key itself, or a section around it.
  section = path.slice(0, -1).reduce((inner, step) => inner[step] as typeof content, content);
  section[path.at(-1)!] = value;
  return parseConfiguration(JSON.stringify(content), "/runs/run.yaml");
}

/** With a scorer, which other than embedded models require. */
const judged = (text: string) => (/^scorer:/m.test(text) ? text : `scorer: {type: embedded}\n${text}`);

/** Options that a kind requires together with one of its keys. */
function required(type: string, path: Key["path"], value: unknown): Record<string, unknown> {
  const key = String(path.at(-1));
  const scorer = { type: "embedded" };
  const methods: Record<string, Record<string, unknown>> = {
    platt: { slope: 1, intercept: 0 },
    isotonic: { points: [[0, 0]] },
    "min-max": { minimum: -9, maximum: 9 },
  };
  if (type === "keyword" && (path.includes("cache") || key === "deadline"))
    return { entries: [{ term: "a" }] };
  if (type === "classifier" || type === "sentence-encoder")
    return key === "model" ? {} : { model: "/runs/model" };
  if (type === "score" || (type === "gibberish" && key === "clean")) return { scorer };
  if (type === "judge" || type === "local-judge") {
    const isPriced = path.includes("price") || key === "dollars";
    const isScaled = path.includes("scale");
    return {
      model: type === "judge" ? "m" : "/runs/model",
      ...(isPriced ? { price: { input: 1, output: 1 } } : {}),
      ...(isScaled ? { read: "number", file: "/runs/rubric.txt", scale: { from: -9, to: 9 } } : {}),
    };
  }
  if (type === "tool-call") return { calls: [{ tool: "a" }] };
  if (type === "llama-guard") return { model: "owner/guard" };
  if (type === "threshold" || type === "clip") return { scorer };
  if (["weighted", "mean", "max"].includes(type)) {
    return { scorers: type === "weighted" ? [{ scorer, weight: 1 }] : [scorer] };
  }
  if (type !== "calibrated") return {};
  const own = Object.entries(methods).find(([, options]) => key in options)?.[0];
  const method = key === "method" ? (value as string) : (own ?? "platt");
  return { scorer, method, ...methods[method] };
}

/** The changes between a checkpoint's configuration and another. */
const changes = (then: Configuration, now: Configuration): string[] =>
  changedSettings(saved(then), configurationSettings(now));

/** The settings as a checkpoint has them. */
const saved = (configuration: Configuration): RunSettings =>
  JSON.parse(JSON.stringify(configurationSettings(configuration))) as RunSettings;

describe("every key of the schema is either free or refused when a run is resumed", () => {
  beforeAll(() => {
    writeFileSync(join(folder, "one.json"), '["one"]');
    writeFileSync(join(folder, "two.json"), '["two"]');
  });

  test("the list of free keys names keys only", () => {
    expect(FREE.filter((name) => !cases.some(({ path }) => dotted(path) === name))).toEqual([]);
    expect(cases.length).toBeGreaterThan(60);
  });

  test.each(cases.map((key) => [dotted(key.path), key.type ?? "", key] as const))(
    "%s %s",
    async (name, _, key) => {
      const [one, two] = values(String(key.path.at(-1)), key.schema);
      const [then, now] = [await configured(key, one), await configured(key, two)];
      expect(changes(then, then)).toEqual([]);
      if (FREE.includes(name)) {
        expect(changes(then, now)).toEqual([]);
        return;
      }
      const found = changes(then, now);
      expect(found.length).toBeGreaterThanOrEqual(1);
      // The shape of trees, which precedes the reward, follows its preset.
      if (name !== "reward.preset")
        expect(found[0]).toMatch(new RegExp(`^${name.replaceAll(/[.[\]]/g, "\\$&")}\\S* was .* and is now `));
      const change = `${name} was ${JSON.stringify(one)} and is now ${JSON.stringify(two)}`;
      // A method has its own parameters, and the margin of pairs follows the reward.
      if (["scorer.method", "reward.preset", "reward.responseWeight"].includes(name))
        expect(found).toContain(change);
      else if (typeof one !== "object") expect(found).toEqual([change]);
    },
  );

  test.each([
    ["sampler", "scorer: {}", "sampler: {width: 3}", "sampler.width was 4 and is now 3"],
    [
      "a kind",
      "algorithm: {type: dpo}",
      "algorithm: {type: ipo}",
      'algorithm.type was "dpo" and is now "ipo"',
    ],
    [
      "a longer list",
      "scorer: {type: keyword, entries: [{term: a}]}",
      "scorer: {type: keyword, entries: [{term: a}, {term: b}]}",
      'scorer.entries[1].term was not given and is now "b"',
    ],
    [
      "what is no longer given",
      "training: {weightDecay: 0.5}",
      "",
      "training.weightDecay was 0.5 and is now not given",
    ],
  ])("%s", async (_, before, after, expected) => {
    const models = "models: {tester: a/b, target: a/b}\n";
    const read = (text: string) => parseConfiguration(`${models}${judged(text)}\n`, "/runs/run.yaml");
    expect(changes(await read(before), await read(after))).toContain(expected);
  });
});

describe("files", () => {
  const models = "models: {tester: a/b, target: a/b}\n";
  const read = (text: string) => parseConfiguration(`${models}${judged(text)}\n`, join(folder, "run.yaml"));

  test("prompts and word lists can be renamed, but not have different content", async () => {
    writeFileSync(join(folder, "a.json"), '["x"]');
    writeFileSync(join(folder, "same.json"), '["x"]');
    const text = "prompts: {train: a.json}\nscorer: {type: keyword, file: a.json}";
    const then = saved(await read(text));
    const moved = configurationSettings(await read(text.replaceAll("a.json", "same.json")));
    expect(changedSettings(then, moved)).toEqual([]);
    writeFileSync(join(folder, "a.json"), '["y"]');
    const changed = changedSettings(then, configurationSettings(await read(text)));
    expect(changed).toHaveLength(2);
    expect(changed[0]).toMatch(
      /^prompts\.train: ".*a\.json" has different content \(SHA-256 was [0-9a-f]{64} and is now /,
    );
    expect(changed[1]).toMatch(/^scorer\.file: /);
  });

  test("a module can be moved, but not changed", async () => {
    const text = "export const half = () => 0.5;";
    for (const name of ["m1.mjs", "m2.mjs"]) writeFileSync(join(folder, name), text);
    const kept = saved(await read("scorer: {type: ./m1.mjs#half}"));
    const now = async (type: string) =>
      changedSettings(kept, configurationSettings(await read(`scorer: {type: ${type}}`)));
    expect(await now("./m1.mjs#half")).toEqual([]);
    expect(await now("./m2.mjs#half")).toEqual([]);
    writeFileSync(join(folder, "m1.mjs"), `${text} export const third = () => 0.3;`);
    expect(await now("./m1.mjs#half")).toEqual([
      expect.stringMatching(/^scorer\.type: ".*m1\.mjs#half" has different content \(SHA-256 was /) as string,
    ]);
    expect((await now("embedded"))[0]).toMatch(/^scorer\.type was ".*m1\.mjs#half" and is now "embedded"$/);
  });
});
