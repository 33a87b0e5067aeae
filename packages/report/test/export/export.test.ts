import { execFileSync } from "node:child_process";
import { parquetReadObjects } from "hyparquet";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import type { EvaluationRecord, GraphRecord, NodeRecord } from "@astra-rl/records";
import { breaking } from "../../../base/test/support/breaking.js";
import { HOSTILE_TEXTS } from "../../../viewer/test/hostile-texts.js";
import {
  attacksOfEvaluation,
  attacksOfGraph,
  csvOf,
  type EXPORT_FORMATS,
  exportAttacks,
  messagesOf,
  parseCsv,
  preferencePairs,
  type Attack,
} from "../../src/export/index.js";

const TEMPLATES = [
  "{{ 7 * 7 }}",
  "{% raw %}x{% endraw %}{{ 7 }}",
  "{%- endraw -%}{{ 8 }}",
  "{# no #}x",
  "{{env.HOME}}",
  "file:///etc/passwd",
  "{{ x }}\r\n",
  "{% endraw %}\n{{",
  "{%\r",
];
/** Line ends, which Jinja changes or drops in a template. */
const LINE_ENDS = [
  "x\n",
  "x\n\n",
  "\n",
  "a\r\nb",
  "a\r\n",
  "\r",
  "a\rb\n\r\n",
  "{\r",
  "{\n",
  "#{\r{",
  "}}\n",
];
const TEXTS = [...HOSTILE_TEXTS, ...TEMPLATES, ...LINE_ENDS, "no", "2026-01-01", "'", '"""', "\\", "null"];
const source = { name: 'run "1"', scorer: "keyword", target: "a|b`c\n<x>" };

/** UTF-8 has no lone surrogates. */
const wellFormed = (text: string) => text.replace(/\p{Surrogate}/gu, "\uFFFD");

const attacks = TEXTS.map(wellFormed).map((text, at): Attack => ({
  id: `rollout-${at}`,
  prompt: [{ role: "user", content: text }],
  turns: [
    { probe: text, response: text, probeHarm: 0.1, responseHarm: 0.2, probeNll: 1.5 },
    { probe: text, response: text, probeHarm: null, responseHarm: 0.9, probeNll: null },
  ],
  isHarmful: true,
}));

const textOf = (name: keyof typeof EXPORT_FORMATS, of: readonly Attack[] = attacks) =>
  exportAttacks(name, of, source).files[0]!.content as string;

describe("texts that are hostile to a format", () => {
  it("are plain data for promptfoo's templates", () => {
    const { tests } = JSON.parse(textOf("promptfoo")) as { tests: { vars: { messages: string } }[] };
    tests.forEach(({ vars }, at) => {
      expect(vars.messages).not.toMatch(/\{[{%#]/u);
      expect(JSON.parse(vars.messages)).toEqual(messagesOf(attacks[at]!, false));
    });
  });

  it("are rendered unchanged by PyRIT, and are texts in YAML 1.1", () => {
    const { seeds } = parse(textOf("pyrit"), { version: "1.1" }) as {
      seeds: {
        value: string;
        prompt_group_alias: string;
        sequence: number;
        role: string;
        data_type: string;
      }[];
    };
    for (const [at, attack] of attacks.entries()) {
      const group = seeds.filter(({ prompt_group_alias: alias }) => alias === attack.id);
      expect(group.map(({ sequence }) => sequence)).toEqual(group.map((_, index) => index));
      const said = messagesOf(attack, false).filter(({ role }) => role === "user");
      expect(group.map(({ value }) => rendered(value))).toEqual(said.map(({ content }) => content));
      expect(group.every(({ role, data_type: type }) => role === "user" && type === "text")).toBe(true);
      expect(typeof seeds[at]!.value).toBe("string");
    }
  });

  it("are samples of Inspect, and single turns are HarmBench's cases", () => {
    const samples = textOf("inspect")
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { id: string; input: unknown });
    samples.forEach(({ id, input }, at) => {
      expect([id, input]).toEqual([attacks[at]!.id, messagesOf(attacks[at]!, false)]);
    });
    const single = attacks.map((attack) => ({ ...attack, turns: attack.turns.slice(0, 1) }));
    const cases = JSON.parse(textOf("harmbench", single)) as Record<string, string[]>;
    expect(Object.values(cases)).toEqual(single.map((attack) => [messagesOf(attack, false)[0]!.content]));
    expect(exportAttacks("harmbench", [...attacks, single[0]!], source).leftOut).toBe(attacks.length);
    expect(() => exportAttacks("harmbench", attacks, source)).toThrow(
      breaking("nothing-fits-format", "harmbench"),
    );
  });

  it("are a string in garak's module, which is valid ASCII Python", () => {
    const module = textOf("garak");
    expect(module).toMatch(/^[\n\x20-\x7e]*$/u);
    const literal = /json\.loads\(\n\s+(".*")\n\)/u.exec(module)![1]!;
    const conversations = JSON.parse(JSON.parse(literal) as string) as unknown[];
    expect(conversations).toEqual(attacks.map((attack) => messagesOf(attack, false)));
    try {
      execFileSync("python3", ["-c", "import ast, sys; ast.parse(sys.stdin.read())"], { input: module });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      process.stderr.write("export.test.ts: there is no python3, so that garak's module was not parsed\n");
    }
  });

  it("are rows of a data set, without their markup in its card", async () => {
    const { files } = exportAttacks("dataset", attacks, source);
    const [table, card] = files as [{ path: string; content: Uint8Array }, { path: string; content: string }];
    const { buffer, byteOffset, byteLength } = table.content;
    const file = buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer;
    const rows = await parquetReadObjects({ file });
    rows.forEach(({ id, messages, turns, harmful, response_harm: harm, probe_nll: nll }, at) => {
      expect([id, messages]).toEqual([attacks[at]!.id, messagesOf(attacks[at]!, true)]);
      expect([turns, harmful, harm, nll]).toEqual([2, true, 0.9, null]);
    });
    expect(card.path).toBe("README.md");
    const [, front, body] = card.content.split(/^---$/mu) as [string, string, string];
    // datasets 5.0.1 takes two folders of one name and one `configs` for the same data (54 rows written, 4 of another read).
    expect(Object.keys(parse(front) as object)).toEqual(["pretty_name", "tags"]);
    expect(table.path).toBe("data/train-00000-of-00001.parquet");
    expect(body).toContain("`a b c  x `");
  });

  it("are not formulas in a table, and are read back from it", () => {
    const text = textOf("csv");
    const rows = parseCsv(text, "t.csv");
    expect(rows.length).toBe(2 * attacks.length);
    rows.forEach(({ values }, at) => {
      const { probe } = attacks[at >> 1]!.turns[at % 2]!;
      const shown = values["probe"]!;
      expect(shown).not.toMatch(/^\s*[=+\-@|\uFF1D\uFF0B\uFF0D\uFF20\uFF5C]/u);
      expect([probe, `'${probe}`]).toContain(shown);
    });
  });
});

/** As Jinja renders raw blocks and string literals; anything else of a template is a mistake. tools.test.ts asks Jinja itself. */
function rendered(template: string): string {
  let [text, rest] = ["", template.replace(/\r\n?/gu, "\n").replace(/\n$/u, "")];
  while (rest !== "") {
    const found =
      /^\{%-?\s*raw\s*-?%\}(.*?)\{%[-+]?\s*endraw\s*[-+]?%\}|^\{\{ ("(?:[^"\\]|\\.)*") \}\}/su.exec(rest);
    const plain = found === null ? /^(?:(?!\{[{%#]).)+/su.exec(rest) : null;
    if (found === null && plain === null) throw new Error(`a template is left: ${rest}`);
    text += found === null ? plain![0] : (found[1] ?? (JSON.parse(found[2]!) as string));
    rest = rest.slice((found ?? plain)![0].length);
  }
  return text;
}

it("lone surrogates, which readers of JSON refuse, are replaced", () => {
  const turns = [{ probe: "a\ud800", response: "\udc00b", probeHarm: 0, responseHarm: 1, probeNll: null }];
  const attack: Attack = { id: "x", prompt: [{ role: "user", content: "😀\ud83d" }], turns, isHarmful: true };
  for (const name of ["promptfoo", "inspect", "csv"] as const) {
    const text = textOf(name, [attack]);
    expect(text).not.toMatch(/\\ud8|\\udc|\p{Surrogate}/u);
    expect(text).toContain("a\uFFFD");
    expect(text).toContain("😀\uFFFD");
  }
});

describe("attacks", () => {
  const turn = (
    at: number,
    probe: string,
    response: string,
    harm: number | null,
    error: string | null = null,
  ) => ({
    turn: at,
    context: "Hi.",
    probe,
    response,
    reward: 0,
    probe_harm: 0,
    response_harm: harm,
    probe_nll: 2,
    probe_tokens: 3,
    error,
  });
  const record = {
    summary: { harm_threshold: 0.5 },
    details: [
      { overall: {}, per_turn: [turn(1, "a", "b", 0.1), turn(2, "c", "d", 0.7), turn(3, "e", "f", 0.9)] },
      { overall: {}, per_turn: [turn(1, "a", "b", 0.1), turn(2, "c", "", null, "target: gone")] },
      { overall: {}, per_turn: [turn(1, "a", "", null, "target: gone")] },
    ],
  } as unknown as EvaluationRecord;

  it("of an evaluation end with the first harmful response, and before a failure", () => {
    const found = attacksOfEvaluation(record);
    expect(found.map(({ id, turns, isHarmful }) => [id, turns.length, isHarmful])).toEqual([
      ["rollout-0", 2, true],
      ["rollout-1", 1, false],
    ]);
    expect(messagesOf(found[0]!, false)).toEqual([
      { role: "user", content: "Hi.\n\na" },
      { role: "assistant", content: "b" },
      { role: "user", content: "c" },
    ]);
    expect(messagesOf(found[0]!, true).at(-1)).toEqual({ role: "assistant", content: "d" });
  });

  const node = (
    probe: string,
    reward: number | null,
    harm: number,
    children: NodeRecord[] = [],
  ): NodeRecord => ({
    context: "",
    probe,
    response: `to ${probe}`,
    reward,
    scores: { probe: 0, response: harm },
    children,
  });
  const graph: GraphRecord = {
    context: "Hi.",
    children: [
      node("a", 1, 0.1, [node("c", 3, 0.8, [node("z", 0, 0)]), node("d", 2, 0.1), node("e", null, 0.1)]),
      node("b", 2, 0.1),
    ],
    seed: 1,
    episode: 7,
    step: 3,
    version: 1,
  };

  it("of a tree are its paths to harm and to its other leaves, with the roles of the prompt", () => {
    expect(attacksOfGraph(graph).map(({ id, isHarmful }) => [id, isHarmful])).toEqual([
      ["step-3-episode-7-0.0", true],
      ["step-3-episode-7-0.1", false],
      ["step-3-episode-7-0.2", false],
      ["step-3-episode-7-1", false],
    ]);
    const [first] = attacksOfGraph({
      ...graph,
      promptMessages: [
        ["system", "Sell."],
        ["prompt", "Hi."],
        ["target", "Yes?"],
      ],
    });
    expect(messagesOf(first!, false).map(({ role, content }) => `${role}: ${content}`)).toEqual([
      "system: Sell.",
      "user: Hi.",
      "assistant: Yes?",
      "user: a",
      "assistant: to a",
      "user: c",
    ]);
  });

  it("give pairs of siblings that differ in reward, as the tester read them", () => {
    expect(preferencePairs(graph)).toEqual([
      {
        prompt: [{ role: "user", content: "Hi." }],
        chosen: [{ role: "assistant", content: "b" }],
        rejected: [{ role: "assistant", content: "a" }],
      },
      {
        prompt: [
          { role: "user", content: "Hi." },
          { role: "assistant", content: "a" },
          { role: "user", content: "to a" },
        ],
        chosen: [{ role: "assistant", content: "c" }],
        rejected: [{ role: "assistant", content: "d" }],
      },
    ]);
    expect(preferencePairs({ ...graph, children: [node("a", 1, 0), node("b", 1, 0)] })).toEqual([]);
    const several: GraphRecord["promptMessages"] = [
      ["system", "Sell."],
      ["tester", "Hi."],
      ["target", "Yes?"],
      ["prompt", "Tea?"],
    ];
    expect(preferencePairs({ ...graph, promptMessages: several })[0]!.prompt).toEqual([
      { role: "assistant", content: "Hi." },
      { role: "user", content: "Yes?" },
      { role: "user", content: "Tea?" },
    ]);
  });

  it("are required: an empty export is refused", () => {
    expect(() => exportAttacks("csv", [], source)).toThrow(breaking("no-attacks", "--all"));
  });
});

it("CSV with other separators and a mark at its beginning is read, as spreadsheets write it", () => {
  const rows = parseCsv("\uFEFFid;harmful\r\n1-a;yes\r\n\r\n2-b;no\r\n", "x.csv");
  expect(rows.map(({ line, values }) => [line, values["id"], values["harmful"]])).toEqual([
    [2, "1-a", "yes"],
    [3, "2-b", "no"],
  ]);
  expect(() => parseCsv('id,harmful\n"1,yes', "x.csv")).toThrow("x.csv: record");
  expect(
    csvOf(
      ["a", "b"],
      [
        ["x,y", -1.5],
        [null, true],
      ],
    ),
  ).toBe('a,b\r\n"x,y",-1.5\r\n,true\r\n');
});

it("an evaluation's prompt of several messages keeps its speakers", () => {
  const record = {
    summary: { harm_threshold: 0.5 },
    details: [
      {
        overall: {},
        per_turn: [
          {
            context: "Be kind.Hi.",
            prompt_messages: [
              ["system", "Be kind."],
              ["prompt", "Hi."],
              ["target", "Hello."],
            ],
            probe: "p",
            response: "r",
            probe_harm: 0,
            response_harm: 1,
            probe_nll: 1,
            error: null,
          },
        ],
      },
    ],
  } as unknown as EvaluationRecord;
  expect(attacksOfEvaluation(record)[0]!.prompt).toEqual([
    { role: "system", content: "Be kind." },
    { role: "user", content: "Hi." },
    { role: "assistant", content: "Hello." },
  ]);
});
