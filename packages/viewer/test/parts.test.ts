import type { ToolCallRecord } from "@astra-rl/records";
import { describe, expect, test } from "vitest";
import { titleOf } from "../src/names.js";
import { findConversations, matches, textOf, type Filter } from "../src/found.js";
import { parseReport } from "../src/records.js";
import { halfWindow, runningMean, valuesOf } from "../src/series.js";
import { LONGEST, shown } from "../src/shown.js";
import { layout, openNodes, placedNodes, worstResponse } from "../src/tree.js";
import { sampleReport } from "./sample-report.js";

const report = sampleReport(["One.", "Two.", "Three."]);
const [, evaluation] = report.evaluations;
const graph = report.runs[0]!.graphs[0]!;
const filter: Filter = { outcome: "all", order: "given", query: "", once: false };
const find = (wanted: Partial<Filter>) => findConversations(evaluation!, { ...filter, ...wanted });

describe("conversations", () => {
  test("are filtered by outcome, as the evaluation judged it", () => {
    expect(find({})).toHaveLength(4);
    expect(find({ outcome: "harmful" }).map(({ index }) => index)).toEqual([0, 1, 2]);
    expect(find({ outcome: "harmless-probes" })).toHaveLength(3);
    expect(find({ outcome: "errors" }).map(({ index }) => index)).toEqual([3]);
    const unjudged = {
      ...evaluation!,
      details: evaluation!.details.map((detail) => ({
        ...detail,
        overall: { ...detail.overall, harmless_probe_success: null },
      })),
    };
    expect(findConversations(unjudged, { ...filter, outcome: "harmless-probes" })).toEqual([]);
  });

  test("are found by any of their texts, ignoring case", () => {
    expect(find({ query: " CALM " }).map(({ index }) => index)).toEqual([3]);
    expect(find({ query: "one. again" }).map(({ index }) => index)).toEqual([0]);
    expect(matches("aXbxc", "x")).toEqual(["a", "X", "b", "x", "c"]);
    expect(matches("İx", "x").join("")).toBe("İx");
  });

  test("are listed by likelihood, those with the same probes once, with their number", () => {
    expect(find({ order: "likely" }).map(({ index }) => index)).toEqual([3, 0, 1, 2]);
    expect(find({ order: "harm" }).map(({ index }) => index)).toEqual([0, 1, 2, 3]);
    const twice = { ...evaluation!, details: [...evaluation!.details, evaluation!.details[0]!] };
    const once = findConversations(twice, { ...filter, once: true });
    expect(once.map(({ index, count }) => [index, count])).toEqual([
      [0, 2],
      [1, 1],
      [2, 1],
      [3, 1],
    ]);
    expect(findConversations(twice, filter)).toHaveLength(5);
  });
});

test("show the name of a model given as a section, and the roles of a prompt of several messages", () => {
  const named = structuredClone(report);
  const title = (models: unknown, system?: unknown) => {
    named.runs[0]!.configuration = { models, system };
    return titleOf(named);
  };
  expect(title({ tester: { path: "/a/one" }, target: { type: "openai", model: "gpt-x" } })).toBe(
    "one trained against gpt-x",
  );
  expect(title({ tester: "org/name", target: ["/b/two", { type: "silent" }] })).toBe(
    "org/name trained against two, silent",
  );
  expect(title({}, { type: "/home/cart.ts#Cart" })).toBe("cart.ts#Cart trained against cart.ts#Cart");
  const [found] = find({});
  found!.turns = [
    {
      ...found!.turns[0]!,
      prompt_messages: [
        ["system", "Be kind."],
        ["prompt", "Hi."],
      ],
    },
  ];
  expect(textOf(found!)).toMatch(/^system: Be kind\.\nprompt: Hi\.\ntester: /u);
  const calls: ToolCallRecord[] = [
    { name: "find_order", arguments: { order: "7" }, result: { amount: 20 } },
    { name: "refund", arguments: { amount: 20 }, error: "not allowed" },
    { name: "wait", arguments: {} },
  ];
  found!.turns = [{ ...found!.turns[0]!, probe: "Refund me.", calls, response: "Done." }];
  expect(textOf(found!).split("\n").slice(2)).toEqual([
    "tester: Refund me.",
    'call: find_order({"order":"7"}) → {"amount":20}',
    'call: refund({"amount":20}) failed: not allowed',
    "call: wait({})",
    "target: Done.",
  ]);
});

describe("trees", () => {
  const all = placedNodes(graph);

  test("list parents before their children, each with its depth", () => {
    expect(all.map(({ path }) => path)).toEqual([
      "0",
      "0.0",
      "0.0.0",
      "0.0.1",
      "0.1",
      "0.1.0",
      "0.1.1",
      "1",
      "1.0",
      "1.0.0",
      "1.0.1",
      "1.1",
      "1.1.0",
      "1.1.1",
    ]);
    expect(all[3]).toMatchObject({ level: 3, parent: "0.0", place: 2, siblings: 2 });
    expect(worstResponse(graph)).toBe(0.9);
  });

  test("hide what is below a closed node", () => {
    expect(openNodes(all, new Set(["0"])).map(({ path }) => path)[1]).toBe("1");
    expect(openNodes(all, new Set(["0", "0.1"]))).toHaveLength(8);
  });

  test("place children below their parents, and leaves apart from each other", () => {
    const places = layout(all);
    const leaves = all.filter(({ node }) => node.children.length === 0).map(({ path }) => places.get(path)!);
    expect(leaves.map(({ x }) => x)).toEqual(Array.from({ length: 8 }, (_, index) => index / 7));
    expect(places.get("0")!.x).toBeCloseTo(1.5 / 7, 12);
    expect(new Set(leaves.map(({ y }) => y))).toEqual(new Set([1]));
  });

  test("do not overflow the stack at the maximum depth of a run", () => {
    let deep = graph.children[0]!;
    for (let level = 0; level < 20_000; level++) deep = { ...deep, children: [deep] };
    expect(placedNodes({ children: [deep] }).length).toBeGreaterThan(20_000);
  });
});

test("running means skip unknown values", () => {
  expect(runningMean([1, null, 3, null, null], 1)).toEqual([1, 2, 3, 3, null]);
  expect(halfWindow(10)).toBe(0);
  const metrics = [{ step: 1, loss: null, "reward/mean": 1, version: 1, odd: "text" }];
  expect(valuesOf(metrics, "odd")).toEqual([null]);
  expect(valuesOf(metrics, "reward/mean")).toEqual([1]);
});

test("invisible characters are spelled out; long texts are truncated", () => {
  expect(shown(" a\u202Eb\u0000\n\tc\u200Dd ")).toBe("a\\u{202e}b\\u{0}\n\tc\u200Dd");
  expect(Array.from(shown("🙂".repeat(LONGEST + 5)))).toHaveLength(LONGEST);
  expect(shown({ a: 1 })).toBe('{"a":1}');
});

test("records that the page cannot show are reported in a sentence", () => {
  expect(parseReport("{")).toMatch(/not JSON/);
  expect(parseReport("null")).toMatch(/astra-rl report/);
  expect(parseReport('{"version": 1}')).toMatch(/have version 1, and this page reads version 3/);
  expect(parseReport(JSON.stringify(report))).toEqual(report);
});
