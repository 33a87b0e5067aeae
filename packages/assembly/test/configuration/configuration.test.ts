// The kinds of contrib are registered by astra-rl.
import "@astra-rl/contrib/kinds";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { UsageError, closest } from "@astra-rl/base";
import { turnsOfTree } from "@astra-rl/method";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { configurationReference } from "../../../../scripts/configuration-reference.js";
import { breaking } from "../../../base/test/support/breaking.js";
import {
  configurationJsonSchema,
  parseConfiguration,
  parseKindSection,
  parseOverride,
  readConfiguration,
  stringifyConfiguration,
} from "../../src/configuration/index.js";

const MINIMAL = "models:\n  tester: embedded:chatter\n  target: embedded:chatter\n";
const parse = (text: string, ...sets: string[]) =>
  parseConfiguration(text, "/runs/run.yaml", { overrides: sets.map(parseOverride) });

/** The message of the UsageError that a text causes. */
async function mistake(text: string, ...sets: string[]): Promise<string> {
  try {
    await parse(text, ...sets);
  } catch (error) {
    expect(error).toBeInstanceOf(UsageError);
    return (error as Error).message;
  }
  throw new Error("expected a UsageError");
}

describe("a configuration file", () => {
  test("requires only the two models; all else has defaults", async () => {
    const configuration = await parse(MINIMAL);
    expect(configuration).toMatchObject({
      seed: 0,
      sampler: { width: 4, depth: 3 },
      generation: { tester: { maxNewTokens: 32, topK: 50, topP: 0.9, temperature: 1 } },
      reward: { preset: "elicitation" },
      scorer: { type: "embedded" },
      algorithm: { type: "dpo", beta: 0.1 },
      training: { trainingSteps: 100, numEpisodesPerExperience: 4, batchSize: 32, learningRate: "auto" },
    });
  });

  test.each([
    ["algorithm: {type: dpo}", 4, 4, 100],
    ...["ipo", "orpo", "grpo", "rloo", "ppo", "a2c", "reinforce"].map(
      (type) => [`algorithm: {type: ${type}}`, 2, 8, 300] as const,
    ),
    ["reward: {preset: paper}", 2, 8, 300],
    ["training: {trainingSteps: 7}", 4, 4, 7],
    ["training: {numEpisodesPerExperience: 5}", 2, 5, 300],
    ["sampler: {width: 3}", 3, 8, 300],
    ["sampler: {depth: 5}", 2, 8, 300],
    ["sampler: {maxTurns: 500}", 4, 4, 100],
  ] as const)("DPO has trees of four siblings, unless a shape is given: %s", async (text, ...shape) => {
    const { sampler, training } = await parse(`${MINIMAL}${text}\n`);
    expect([sampler["width"], training.numEpisodesPerExperience, training.trainingSteps]).toEqual(shape);
  });

  test("a wide experience has as many answers as another", async () => {
    const answers = async (type: string) => {
      const { sampler, training } = await parse(`${MINIMAL}algorithm: {type: ${type}}\n`);
      const turns = turnsOfTree(sampler["width"] as number, sampler["depth"] as number);
      return turns * training.numEpisodesPerExperience * training.trainingSteps;
    };
    expect(await answers("dpo")).toBe(33_600);
    expect(await answers("ppo")).toBe(33_600);
  });

  test("written out and read again is the same", async () => {
    const configuration = await parse(
      `${MINIMAL}algorithm: {type: ipo, beta: 0.01}\nscorer: {type: keyword, entries: [{term: "a\\tb"}]}\n`,
    );
    expect(await parse(stringifyConfiguration(configuration))).toEqual(configuration);
  });

  test("paths are relative to the file, those of --set to the working directory; hub ids stay", async () => {
    const text =
      "models:\n  tester: ../tester\n  target: owner/name@main\nscorer: {type: embedded}\nprompts:\n  train: train.json\n";
    const configuration = await parse(text, "prompts.dev=dev.json");
    expect(configuration.models).toMatchObject({ tester: "/tester", target: "owner/name@main" });
    expect(configuration.prompts).toEqual({
      train: "/runs/train.json",
      dev: join(process.cwd(), "dev.json"),
      test: "embedded",
    });
  });
});

test("a target other than the embedded ones requires a choice of scorer", async () => {
  const read = (text: string) => parseConfiguration(text, "/runs/run.yaml");
  const own = "models: {tester: embedded:chatter, target: a/b}\n";
  await expect(read(own)).rejects.toThrow(breaking("missing-key", "run.yaml:1:1: scorer"));
  await expect(read("models: {tester: a/b, target: embedded:chat, otherTargets: [c/d]}\n")).rejects.toThrow(
    breaking("missing-key", "scorer"),
  );
  expect((await read(`${own}scorer: {type: embedded}\n`)).scorer.type).toBe("embedded");
  expect((await read("models: {tester: a/b, target: embedded:chat}\n")).scorer.type).toBe("embedded");
});

describe("too large trees are refused before any work, with their size and the key of the limit", () => {
  const read = (text: string, ...sets: string[]) =>
    parseConfiguration(`${MINIMAL}${text}\n`, "/runs/run.yaml", { overrides: sets.map(parseOverride) });

  test.each([
    [
      "sampler: {width: 1000000000}",
      /run\.yaml:4:1: sampler\.depth 3 gives, with width 1000000000, trees of 1\.0e\+27 turns, but sampler\.maxTurns allows 100,000$/,
    ],
    [
      "sampler: {depth: 40}",
      /run\.yaml:4:18: sampler\.depth 40 gives, with width 2, trees of 2,199,023,255,550 turns/,
    ],
    ["sampler: {depth: 1000000000, width: 1}", /trees of 1,000,000,000 turns/],
    [
      "training: {numEpisodesPerExperience: 1000000000}",
      /run\.yaml:4:38: training\.numEpisodesPerExperience: 1000000000 trees of 14 turns are 14,000,000,000 turns per step, but sampler\.maxTurns allows 100,000$/,
    ],
    [
      "evaluation: {depth: 1000000}",
      /evaluation\.depth: a conversation of 1000000 turns is too long; sampler\.maxTurns allows 100,000$/,
    ],
    ["sampler: {depth: 0}", /sampler\.depth must be .* from 1 .*, got 0/],
    [
      "generation: {tester: {temperature: 1.0e-300}}",
      /generation\.tester\.temperature must be .* at least 0\.000001, got 1e-300/,
    ],
  ])("%s", async (text, message) => {
    await expect(read(text)).rejects.toThrow(message);
  });

  test("a higher limit allows more, and an evaluation of one path may be deep", async () => {
    expect(await read("sampler: {depth: 17, maxTurns: 10000000}")).toMatchObject({ sampler: { depth: 17 } });
    expect(await read("evaluation: {depth: 20}")).toMatchObject({ evaluation: { depth: 20 } });
  });

  test.each([
    ["seed.x=1", '--set seed.x=1: "seed" is a value, not a section; write --set seed=…'],
    ["models.tester.x=1", '"models.tester" is a value, not a section'],
    [
      "scorer.file=k",
      '--set scorer.file=k: unknown key "scorer.file"; it is an option of another type than "embedded"; to use it, set scorer.type: judge or keyword',
    ],
    [`seed=${"[".repeat(50_000)}`, "--set seed: the value is nested too deeply"],
  ])("--set %s", async (set, message) => {
    await expect((async () => read("", set))()).rejects.toThrow(message);
  });

  test.each([
    [
      "a second document",
      "seed: 1\n---\nseed: 2\n",
      "starts a second document, but a configuration is a single one",
    ],
    [
      "brackets 50,000 deep",
      `seed: ${"[".repeat(50_000)}${"]".repeat(50_000)}\n`,
      "/runs/run.yaml:1:1: is nested too deeply",
    ],
    [
      "sections 3,000 deep",
      Array.from({ length: 3000 }, (_, level) => `${" ".repeat(level)}a:`).join("\n"),
      "is nested too deeply",
    ],
  ])("%s", async (_, text, message) => {
    await expect(parseConfiguration(text, "/runs/run.yaml")).rejects.toThrow(message);
  });

  test("aliases that expand to a million values, also in a section", async () => {
    const levels = Array.from({ length: 12 }, (_, i) => `b${i + 1}: &b${i + 1} [*b${i}, *b${i}]`).join("\n");
    const text = `type: keyword\nb0: &b0 [x, x]\n${levels}\n`;
    await expect(parseKindSection("scorer", text, "s.yaml")).rejects.toThrow(
      breaking("not-yaml", "s.yaml:1:1"),
    );
  });

  test("another encoding than UTF-8", async () => {
    const folder = mkdtempSync(join(tmpdir(), "astra-configuration-"));
    writeFileSync(join(folder, "run.yaml"), Buffer.from("seed: 1 # f\u00fcr\n", "latin1"));
    await expect(readConfiguration(join(folder, "run.yaml"))).rejects.toThrow(breaking("not-utf8"));
    rmSync(folder, { recursive: true });
  });
});

describe("mistakes point at the place", () => {
  test.each([
    [
      `${MINIMAL}sampler:\n  widht: 3\n`,
      '/runs/run.yaml:5:3: unknown key "sampler.widht"; did you mean width?',
    ],
    [
      `${MINIMAL}training:\n  learning_rate: 1\n`,
      '/runs/run.yaml:5:3: unknown key "training.learning_rate"; did you mean learningRate?',
    ],
    [
      `${MINIMAL}sampler:\n  zzz: 3\n`,
      '/runs/run.yaml:5:3: unknown key "sampler.zzz"; available: type, width, keep, depth',
    ],
    [`${MINIMAL}trainning: {}\n`, '/runs/run.yaml:4:1: unknown key "trainning"; did you mean training?'],
    [
      `${MINIMAL}sampler:\n  width: 0\n`,
      "/runs/run.yaml:5:10: sampler.width must be a whole number of at least 1, got 0",
    ],
    [
      `${MINIMAL}sampler: {depth: -1}\n`,
      "/runs/run.yaml:4:18: sampler.depth must be a whole number from 1 to 1000, got -1",
    ],
    [
      `${MINIMAL}sampler: {depth: 1.5}\n`,
      "/runs/run.yaml:4:18: sampler.depth must be a whole number from 1 to 1000, got 1.5",
    ],
    [
      `${MINIMAL}training: {learningRate: .nan}\n`,
      "/runs/run.yaml:4:26: training.learningRate must be a finite number greater than 0, got NaN",
    ],
    [
      `${MINIMAL}training: {learningRate: .inf}\n`,
      "/runs/run.yaml:4:26: training.learningRate must be a finite number greater than 0, got Infinity",
    ],
    [
      `${MINIMAL}algorithm: {type: dop}\n`,
      '/runs/run.yaml:4:19: algorithm.type must be "dpo", "a2c", "grpo", "ipo", "orpo", "ppo", "reinforce", "rloo", ' +
        '"supervised" or "trajectory-balance", got "dop"; did you mean dpo?',
    ],
    [
      `${MINIMAL}algorithm: {name: ipo}\n`,
      '/runs/run.yaml:4:13: unknown key "algorithm.name"; "type" names a kind: write type: "ipo"',
    ],
    [
      `${MINIMAL}reward: {terms: [{type: nll, weight: 1}], preset: paper}\n`,
      "reward.preset is an option of presets; a reward has either a preset or terms",
    ],
    [
      `${MINIMAL}reward: {preset: toolbox, emptyProbeNLL: 1}\n`,
      "/runs/run.yaml:4:42: reward.emptyProbeNLL is not an option of the preset toolbox; elicitation and paper have it",
    ],
    [
      `${MINIMAL}reward: {terms: [{type: harm, of: prob, weight: 1}]}\n`,
      '/runs/run.yaml:4:35: reward.terms[0].of must be one of response, both, probe, got "prob"; did you mean probe?',
    ],
    [
      "models: {target: embedded:chatter, tester: {path: x, formt: chat}}\n",
      '/runs/run.yaml:1:54: unknown key "models.tester.formt"; did you mean format?',
    ],
    [
      "models: {tester: embedded:chatter, target: {type: openai, modle: y}}\n",
      '/runs/run.yaml:1:59: unknown key "models.target.modle"; did you mean model?',
    ],
    [
      "models: {tester: embedded:chatter, target: {type: opnai, model: y}}\n",
      'or an export of a module such as ./file.js#name, got "opnai"; did you mean openai?',
    ],
    [`${MINIMAL}reward: {terms: [{type: harm}]}\n`, "reward.terms[0].weight is required (a finite number)"],
    [`${MINIMAL}reward: {terms: []}\n`, "reward.terms must be an array that is not empty, got []"],
    [
      `${MINIMAL}reward: {terms: [{weight: 1}]}\n`,
      'reward.terms[0].type is required ("cosine", "entropy", "gibberish", "goal-similarity", "harm", "likelihood", "nll", "score", "selfBleu" or an export of a module',
    ],
    [
      `${MINIMAL}credit: {type: backup}\n`,
      'credit.type must be "reward" or "back-up", got "backup"; did you mean back-up?',
    ],
    [`${MINIMAL}credit: {type: back-up, gamma: 2}\n`, "credit.gamma must be a number from 0 to 1, got 2"],
    [
      `${MINIMAL}scorer: {entries: []}\n`,
      '/runs/run.yaml:4:10: unknown key "scorer.entries"; it is an option of another type than "embedded"',
    ],
    [
      `${MINIMAL}training: {checkpointEvery: often}\n`,
      'training.checkpointEvery must be "auto" or a whole number of at least 0, got "often"',
    ],
    [`${MINIMAL}training: {optimizer: adamW}\n`, "; did you mean adamw?"],
    [
      "models: {tester: x}\n",
      "/runs/run.yaml:1:1: models.target is required (a folder, a hub id, an export of a module such as ./file.js#name, a section with path",
    ],
    ["", "/runs/run.yaml:1:1: models is required (an object)"],
    ["- 1\n", "/runs/run.yaml:1:1: must contain sections"],
    ["models: {tester: [}\n", "/runs/run.yaml:1:19: "],
    [`${MINIMAL}seed: 1\nseed: 2\n`, "/runs/run.yaml:5:1: Map keys must be unique"],
    [`${MINIMAL}scorer: {type: keyword}\n`, 'scorer must have either "file" or "entries", got neither'],
    ["models: {tester: embedded:judge, target: x}\n", "unknown embedded model; available: embedded:chatter"],
    [
      `${MINIMAL}generation: {tester: {stopStrings: [a, 7]}}\n`,
      "/runs/run.yaml:4:40: generation.tester.stopStrings[1] must be a string that is not empty, got 7",
    ],
  ])("%j", async (text, expected) => {
    expect(await mistake(text)).toContain(expected);
  });

  test("each mistake is one line", async () => {
    const lines = (await mistake(`${MINIMAL}sampler: {width: 0, depth: x}\nextra: 1\n`)).split("\n");
    expect(lines).toHaveLength(3);
    for (const line of lines) expect(line).toMatch(/^\/runs\/run\.yaml:\d+:\d+: /);
  });

  test("errors of --set name the option, which overrides the file", async () => {
    expect(
      (await parse(`${MINIMAL}sampler: {width: 4}\n`, "sampler.width=2", "sampler.width=3")).sampler["width"],
    ).toBe(3);
    expect(await mistake(MINIMAL, "sampler.width=0")).toBe(
      "--set sampler.width=0: sampler.width must be a whole number of at least 1, got 0",
    );
    expect(await mistake(MINIMAL, "sampler.wdth=2")).toContain(
      '--set sampler.wdth=2: unknown key "sampler.wdth"',
    );
    expect(await mistake(MINIMAL, "seed.x=2\n", "seed=1", "seed.y=3")).toContain(
      '"seed" is a value, not a section',
    );
    for (const text of ["sampler", "=1", "a..b=1", "a=[1"])
      expect(() => parseOverride(text)).toThrow(UsageError);
  });

  test("--set changes list items, and appends to lists", async () => {
    const text = `${MINIMAL}scorer: {type: keyword, entries: [{term: a}, {term: b, weight: 0.5}]}\n`;
    const { scorer } = await parse(
      text,
      "scorer.entries[0].term=c",
      "scorer.entries[1].weight=0.2",
      "scorer.entries[2]={pattern: d}",
      "scorer.entries[3].term=e",
    );
    expect(scorer["entries"]).toEqual([
      { term: "c" },
      { term: "b", weight: 0.2 },
      { pattern: "d" },
      { term: "e" },
    ]);
    // A list that the file leaves out begins empty.
    const { generation } = await parse(MINIMAL, 'generation.tester.stopStrings[0]="\\n"');
    expect(generation.tester.stopStrings).toEqual(["\n"]);
    expect(await mistake(text, "scorer.entries[7].term=c")).toBe(
      '--set scorer.entries[7].term=c: "scorer.entries" holds 2, [0] to [1]; [2] appends one, [7] is beyond the end',
    );
    expect(await mistake(MINIMAL, "generation.tester.stopStrings[1]=x")).toBe(
      '--set generation.tester.stopStrings[1]=x: "generation.tester.stopStrings" is empty; [0] appends one, [1] is ' +
        "beyond the end",
    );
    expect(await mistake(text, "scorer.entries.term=c")).toContain(
      '"scorer.entries" is a list; name an item, such as scorer.entries[0]',
    );
    expect(await mistake(text, "scorer[0]=c")).toContain('"scorer" is not a list');
    expect(await mistake(text, "scorer.entries[1].weight=7")).toBe(
      "--set scorer.entries[1].weight=7: scorer.entries[1].weight must be greater than 0 and at most 1, got 7",
    );
    for (const path of ["a[=1", "a[x]=1", "[0]=1", "a[-1]=1", "a[1]b=1"])
      expect(() => parseOverride(path)).toThrow(breaking("malformed-override"));
  });

  test("--set reaches the terms of a reward", async () => {
    const text = `${MINIMAL}reward: {terms: [{type: harm, weight: 1}, {type: nll, weight: -0.1}]}\n`;
    expect((await parse(text, "reward.terms[1].weight=-0.2", "reward.terms[0].of=both")).reward).toEqual({
      terms: [
        {
          type: "harm",
          of: "both",
          probes: "any",
          scale: "score",
          threshold: 0.5,
          weight: 1,
          optional: false,
        },
        { type: "nll", weight: -0.2, optional: false, emptyProbeNLL: 10, free: 0 },
      ],
    });
  });

  test("a section without its type has the default one", async () => {
    expect((await parse(MINIMAL, "algorithm.beta=0.2")).algorithm).toEqual({
      ...(await parse(MINIMAL)).algorithm,
      beta: 0.2,
    });
    expect((await parse(`${MINIMAL}algorithm: {type: ipo}\n`, "algorithm.beta=0.2")).algorithm).toMatchObject(
      {
        type: "ipo",
        beta: 0.2,
      },
    );
  });

  test("a missing file and a folder", async () => {
    await expect(readConfiguration("/nowhere/run.yaml")).rejects.toThrow(
      breaking("file-not-found", "/nowhere/run.yaml"),
    );
    await expect(readConfiguration(tmpdir())).rejects.toThrow(breaking("file-unreadable"));
  });

  test("any text is read or refused with a UsageError", async () => {
    const fragment = fc.oneof(
      fc.constantFrom(
        "models:",
        "  tester: x",
        "\n",
        "&a ",
        "*a",
        "<<: *a",
        "!!js ",
        "? ",
        "- ",
        "{",
        "]",
        "__proto__: 1",
        ".nan",
      ),
      fc.string(),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(fragment, { maxLength: 12 }), async (parts) => {
        try {
          await parse(parts.join(""));
        } catch (error) {
          expect(error).toBeInstanceOf(UsageError);
        }
      }),
      { numRuns: 500, seed: 7 },
    );
  });

  test("--set cannot reach a prototype", async () => {
    expect(await mistake(MINIMAL, "__proto__.polluted=1")).toContain("unknown key");
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });
});

test("suggestions: near words only", () => {
  expect(closest("witdh", ["width", "depth"])).toBe("width");
  expect(closest("learning-rate", ["learningRate"])).toBe("learningRate");
  expect(closest("zzz", ["width", "depth"])).toBeNull();
});

test("the committed reference of all keys is current and complete", () => {
  const text = readFileSync(
    fileURLToPath(new URL("../../../../docs/configuration.md", import.meta.url)),
    "utf8",
  );
  expect(text).toBe(configurationReference());
  for (const key of [
    "sampler.maxTurns",
    "generation.tester.topK",
    "models.lora.rank",
    "reward.terms.weight",
    "models.tester.retry.maxWait",
  ]) {
    const [section, ...rest] = key.split(".");
    expect(text.split(`\n## ${section}\n`)[1]!.split("\n## ")[0]).toContain(`- \`${rest.join(".")}\` (`);
  }
});

test("the committed JSON Schema is current", () => {
  const path = fileURLToPath(new URL("../../../astra-rl/configuration.schema.json", import.meta.url));
  // Made by: npm run schema
  expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(configurationJsonSchema());
});

test("a file on disk is read with its own name in messages", async () => {
  const folder = mkdtempSync(join(tmpdir(), "configuration-"));
  try {
    const path = join(folder, "run.yaml");
    writeFileSync(path, `${MINIMAL}sampler: {width: many}\n`);
    await expect(readConfiguration(path)).rejects.toThrow(breaking("invalid-type", ":4:18: sampler.width"));
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("every committed configuration is valid", async () => {
  const root = fileURLToPath(new URL("../../../../", import.meta.url));
  const tracked = execFileSync("git", ["ls-files", "*.yaml"], { cwd: root, encoding: "utf8" })
    .trim()
    .split("\n");
  const configurations = tracked.filter((file) => /^models:/m.test(readFileSync(join(root, file), "utf8")));
  expect(configurations).toContain("packages/assembly/world/demo.yaml");
  for (const file of configurations)
    expect(await readConfiguration(join(root, file))).toHaveProperty("models");
});
