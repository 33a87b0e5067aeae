import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Conversation } from "@astra-rl/lm";
import {
  metricsRecord,
  parseEvaluationRecord,
  parseEvaluationLines,
  parseGraphLines,
  parseGraphRecord,
  parseMetricsLine,
  parseMetricsLines,
  stringifyEvaluationLine,
  stringifyMetrics,
  type EvaluationSummary,
  type Failure,
  type NodeRecord,
  type TokensRecord,
} from "@astra-rl/records";
import { summarize } from "@astra-rl/analysis";
import { breaking } from "../../../base/test/support/breaking.js";
import {
  Graph,
  Node,
  creditFromRecord,
  graphFromRecord,
  graphRecord,
  stringifyGraph,
} from "../../src/tree/index.js";
import { fieldsOf } from "../support/texts.js";

const text = fc.string({ unit: "binary" });
const number = fc.double({ noNaN: true, noDefaultInfinity: true }).map((x) => (Object.is(x, -0) ? 0 : x));
const failure: fc.Arbitrary<Failure> = fc.record({
  stage: fc.constantFrom("tester", "target", "scorer", "likelihood", "reward"),
  message: text,
  attempts: fc.nat(5),
});
const { node } = fc.letrec<{ node: Node }>((tie) => ({
  node: fc
    .record({
      context: text,
      probe: text,
      response: text,
      reward: number,
      scores: fc.dictionary(fc.constantFrom("response", "probe", "combined", "z", "a/b"), number),
      terms: fc.dictionary(fc.constantFrom("nll", "harm_response", "b"), number),
      likelihood: fc.option(fc.record({ nll: fc.option(number), total: number, tokens: fc.nat() })),
      failure: fc.option(failure, { freq: 5 }),
      children: fc.oneof(
        { maxDepth: 4, depthIdentifier: "node" },
        fc.constant<Node[]>([]),
        fc.array(tie("node"), { maxLength: 3 }),
      ),
    })
    .map(
      (fields) => new Node(fieldsOf({ ...fields, reward: fields.failure === null ? fields.reward : NaN })),
    ),
}));
const graph = fc
  .record({ context: text, children: fc.array(node, { maxLength: 3 }), seed: fc.nat(), episode: fc.nat() })
  .map((fields) => new Graph({ ...fields, context: Conversation.of(fields.context) }));

const CONTEXT = Conversation.of("c");

describe("graph records", () => {
  it("restore the graph they were made from, byte for byte when written again", () => {
    fc.assert(
      fc.property(graph, (original) => {
        const line = stringifyGraph(original);
        expect(line).not.toContain("\n");
        const record = parseGraphRecord(line);
        const restored = graphFromRecord(record);
        expect(stringifyGraph(restored)).toBe(line);
        expect(restored.toJSON()).toEqual(original.toJSON());
      }),
    );
  });

  it("include step, credit and token ids, and restore them", () => {
    const ids = fc.array(fc.nat(60_000), { maxLength: 4 });
    const tokens = fc.record(
      {
        tester: fc.record({ context: ids, probe: ids }),
        target: fc.record({ context: ids, heard: ids, probe: ids, response: ids, end: fc.nat(60_000) }),
        edited: fc.constant(true as const),
      },
      { requiredKeys: ["tester"] },
    );
    fc.assert(
      fc.property(
        graph,
        fc.integer({ min: 1, max: 1e6 }),
        fc.array(fc.tuple(fc.option(number), fc.option(tokens)), { minLength: 200, maxLength: 200 }),
        (original, step, facts) => {
          const nodes = [...original.nodes()];
          const credit = new Map<Node, number>();
          const known = new Map<Node, TokensRecord>();
          for (const [index, [worth, read]] of facts.slice(0, nodes.length).entries()) {
            if (worth !== null) credit.set(nodes[index]!, worth);
            if (read !== null) known.set(nodes[index]!, read);
          }
          const options = { step, credit, tokensOf: (node: Node) => known.get(node) ?? null };
          const line = stringifyGraph(original, options);
          const record = parseGraphLines(`${line}\n`)[0]!;
          expect(record.step).toBe(step);
          const restored = graphFromRecord(record);
          const again = creditFromRecord(record, restored);
          // Nodes come in the same order.
          expect([...restored.nodes()].map((node) => again.get(node))).toEqual(
            nodes.map((node) => credit.get(node)),
          );
          const recorded = (from: NodeRecord[]): unknown[] =>
            from.flatMap((node) => [node.tokens, ...recorded(node.children)]);
          expect(recorded(record.children)).toEqual(nodes.map((node) => known.get(node)));
          // Training data about a graph is not part of the graph.
          expect(stringifyGraph(restored)).toBe(stringifyGraph(original));
          expect(stringifyGraph(restored, { step, credit: again })).toBe(
            stringifyGraph(original, { step, credit }),
          );
        },
      ),
    );
  });

  it("omit credit that is not a number", () => {
    const turn = new Node(fieldsOf({ context: "c", probe: "p", response: "r", reward: 0 }));
    const line = stringifyGraph(new Graph({ context: CONTEXT, children: [turn] }), {
      credit: new Map([[turn, NaN]]),
    });
    expect(line).not.toContain("credit");
  });

  it("have the documented keys in the documented order, followed by all others", () => {
    const fields = {
      context: "c",
      probe: "p",
      response: "r",
      reward: 0.5,
      scores: { response: 1, probe: 0 },
    };
    const likelihood = { nll: 2, total: -4, tokens: 2 };
    const child = new Node(fieldsOf({ ...fields, likelihood }));
    expect(stringifyGraph(new Graph({ context: CONTEXT, children: [child], seed: 3, episode: 7 }))).toBe(
      '{"context":"c","children":[{"context":"c","probe":"p","response":"r","reward":0.5,"children":[],' +
        '"scores":{"probe":0,"response":1},"likelihood":{"nll":2,"total":-4,"tokens":2}}],' +
        '"seed":3,"episode":7,"version":1}',
    );
  });

  it("write the same bytes for any order of recorded scores", () => {
    const made = (scores: Record<string, number>) =>
      stringifyGraph(
        new Graph({
          context: Conversation.of(""),
          children: [new Node(fieldsOf({ context: "", probe: "", response: "", reward: 0, scores }))],
        }),
      );
    expect(made({ b: 1, a: 2 })).toBe(made({ a: 2, b: 1 }));
  });

  it("keep what a subclass of Node adds", () => {
    class Tagged extends Node {
      tag = "";
      override toJSON() {
        return { ...super.toJSON(), tag: this.tag };
      }
    }
    const child = new Tagged(fieldsOf({ context: "c", probe: "p", response: "r", reward: 1 }));
    child.tag = "mine";
    const record = parseGraphRecord(stringifyGraph(new Graph({ context: CONTEXT, children: [child] })));
    expect(record.children[0]!["tag"]).toBe("mine");
    const restored = graphFromRecord(record, (fields) => {
      const tagged = new Tagged(fields);
      tagged.tag = (fields as { tag?: string }).tag ?? "";
      return tagged;
    });
    expect((restored.children[0] as Tagged).tag).toBe("mine");
    expect(stringifyGraph(restored)).toBe(JSON.stringify(record));
  });

  it("write a failed turn with a null reward and read it back as one", () => {
    const lost: Failure = { stage: "target", message: "gone", attempts: 3 };
    const child = new Node(fieldsOf({ context: "c", probe: "p", response: "", reward: NaN, failure: lost }));
    const record = graphRecord(new Graph({ context: CONTEXT, children: [child] }));
    expect(record.children[0]).toMatchObject({ reward: null, failure: lost });
    expect(graphFromRecord(record).children[0]!.failed).toBe(true);
    expect(graphFromRecord(record).children[0]!.reward).toBeNaN();
  });

  it("say where a record is wrong", () => {
    const good = graphRecord(new Graph({ context: CONTEXT }));
    expect(() => parseGraphRecord("{")).toThrow(breaking("not-json", "JSON"));
    expect(() => parseGraphRecord({ ...good, episode: "1" }, "graphs.jsonl:4")).toThrow(
      breaking("invalid-type", "graphs.jsonl:4: episode:"),
    );
    expect(() => parseGraphRecord({ ...good, children: [{ context: "c" }] })).toThrow(
      breaking("missing-key", "children.0.probe"),
    );
    expect(() => parseGraphRecord({ ...good, version: 2 })).toThrow(
      breaking("unsupported-version", "version 2"),
    );
  });
});

describe("metrics records", () => {
  it("order their keys: step, loss, reward, the rest by name, times, version", () => {
    const values = {
      "time/update_s": 2,
      b: 1,
      step: 4,
      "time/rollout_s": 1,
      a: true,
      "reward/mean": 0.5,
      loss: 0.7,
    };
    expect(stringifyMetrics(values)).toBe(
      '{"step":4,"loss":0.7,"reward/mean":0.5,"a":true,"b":1,"time/rollout_s":1,"time/update_s":2,"version":1}',
    );
  });

  it("convert numbers that JSON lacks to null", () => {
    expect(metricsRecord({ step: 1, loss: NaN, "reward/mean": Infinity })).toEqual({
      step: 1,
      loss: null,
      "reward/mean": null,
      version: 1,
    });
  });

  it("come back as they were written", () => {
    const keys = text.filter((key) => !["step", "loss", "reward/mean", "version", "__proto__"].includes(key));
    const value = fc.oneof(number, text, fc.boolean(), fc.constant(null));
    fc.assert(
      fc.property(fc.nat(), fc.option(number), fc.dictionary(keys, value), (step, loss, rest) => {
        const line = stringifyMetrics({ ...rest, step, loss });
        expect(line).not.toContain("\n");
        const record = parseMetricsLine(line);
        expect(record).toMatchObject({ step, loss, version: 1 });
        for (const [key, wanted] of Object.entries(rest)) expect(record[key]).toBe(wanted);
      }),
    );
  });

  it("skip a truncated last line and refuse damage anywhere else", () => {
    const line = (step: number) => stringifyMetrics({ step, loss: 1, "reward/mean": 0 });
    const torn = `${line(1)}\n${line(2)}\n${line(3).slice(0, 20)}`;
    expect(parseMetricsLines(torn).map((record) => record.step)).toEqual([1, 2]);
    expect(() => parseMetricsLines(`${line(1)}\n{"step":\n${line(3)}\n`, "D/metrics.jsonl")).toThrow(
      breaking("not-json", "D/metrics.jsonl:2"),
    );
    expect(() => parseMetricsLines(`\n${line(1)}\n`)).toThrow(breaking("empty-line", "metrics.jsonl:1"));
  });
});

describe("evaluation records", () => {
  it("of a run are restored as written, one per line", () => {
    const value = fc.option(number);
    const turn = fc.record({
      reward: value,
      probe_harm: value,
      response_harm: value,
      context: text,
      probe: text,
      response: text,
      probe_nll: value,
      probe_tokens: fc.option(fc.nat()),
      error: fc.option(text),
    });
    fc.assert(
      fc.property(fc.array(fc.array(turn, { maxLength: 3 }), { maxLength: 3 }), fc.nat(), (all, n) => {
        const details = all.map((turns) => {
          const per_turn = turns.map((each, at) => ({ turn: at + 1, ...each }));
          const overall = {
            num_turns: turns.length,
            num_errors: 0,
            mean_reward: null,
            mean_probe_harm: null,
            mean_response_harm: null,
            first_harmful_probe_turn: null,
            first_harmful_response_turn:
              per_turn.find(({ response_harm: harm }) => harm !== null && harm >= 0.5)?.turn ?? null,
            harmless_probe_success: true,
            prompt: 0,
          };
          return { overall, per_turn };
        });
        const { controls: _, ...summary } = JSON.parse(
          JSON.stringify(summarize(details)),
        ) as EvaluationSummary;
        const line = { step: n + 1, summary, details, version: 2 as const };
        const written = stringifyEvaluationLine(line);
        expect(written).not.toContain("\n");
        expect(parseEvaluationLines(`${written}\n${written}\n{"step`)).toEqual([line, line]);
      }),
    );
    expect(() => parseEvaluationLines("{}\n", "D/evaluations.jsonl")).toThrow(
      breaking("missing-key", "D/evaluations.jsonl:1: step:"),
    );
  });

  it("say which field is wrong", () => {
    expect(() => parseEvaluationRecord({ summary: {}, details: [], version: 2 }, "eval.json")).toThrow(
      breaking("missing-key", "eval.json: summary.n_rollouts:"),
    );
  });
});
