import { loadCausalLM, tokenLogprobs, type ScoredRow } from "@astra-rl/lm";
import { noGrad } from "@astra-rl/torch";
import { expect } from "vitest";
import type { TokensRecord } from "@astra-rl/records";
import { expand, type ExpandRequest, type Graph, type Node, type Outcome } from "../../src/tree/index.js";
import type { System, ASTSystem } from "../../src/system/index.js";

/** The ids of a turn, as in records. */
export const tokensOf = (system: ASTSystem, node: Node): TokensRecord => system.tokensOf(node)!;

/** Ids that a message has in the conversation of the model that said it. */
export const keptOf = ({ sampled }: Node["probe"]): readonly number[] => sampled!.ids.slice(0, sampled!.kept);

/** The result of tokenLogprobs for rows, one by one, without any cache. */
export async function recomputed(folder: string, rows: readonly ScoredRow[]): Promise<number[][]> {
  const { model } = await loadCausalLM(folder);
  try {
    return rows.map((row) =>
      noGrad(() => {
        const table = tokenLogprobs(model, [row], { packed: false });
        const values = Array.from(table.toTypedArray() as Float32Array);
        table.dispose();
        return values;
      }),
    );
  } finally {
    model.dispose();
  }
}

export function expectClose(
  actual: readonly (readonly number[])[],
  expected: readonly (readonly number[])[],
): void {
  expect(actual.map((row) => row.length)).toEqual(expected.map((row) => row.length));
  const worst = Math.max(
    0,
    ...actual.flatMap((row, i) => row.map((value, j) => Math.abs(value - expected[i]![j]!))),
  );
  expect(worst).toBeLessThan(2e-4);
}

/** The row that the target read a probe in: what stood before it, and its ids. */
export function heardRow({ target }: TokensRecord): ScoredRow {
  const { context, heard, probe } = target!;
  // No text after a probe contains its ids again.
  const at = probe.length === 0 ? heard.length : lastOf(heard, probe);
  return { context: [...context, ...heard.slice(0, at)], continuation: probe };
}

function lastOf(ids: readonly number[], part: readonly number[]): number {
  for (let at = ids.length - part.length; at >= 0; at -= 1) {
    if (part.every((id, index) => ids[at + index] === id)) return at;
  }
  throw new Error(`${String(part)} is not in ${String(ids)}`);
}

type Asked = "getTesterLogprobs" | "getBaselineLogprobs" | "getTargetLogprobs";

/** Contexts and probes of nodes, as algorithms ask about them. */
export const pairsOf = (nodes: readonly Node[]) =>
  [nodes.map(({ probeContext }) => probeContext), nodes.map(({ probe }) => probe)] as const;

/** A method's results for the probes of nodes. */
export async function logprobsOf(
  system: ASTSystem,
  method: Asked,
  nodes: readonly Node[],
): Promise<number[][]> {
  const table = await system.checked[method](...pairsOf(nodes));
  const rows = table.rows();
  table.dispose();
  return rows;
}

/** The ids of a turn in one flat view, and what its tester thought of the probe when it said it. */
export function turn(system: ASTSystem, node: Node) {
  const { tester, target } = tokensOf(system, node);
  const { probe, response } = node;
  return {
    testerContext: tester!.context,
    targetContext: target!.context,
    probe: { sampled: probe.sampled!.ids, kept: tester!.probe, heard: target!.probe },
    response: { sampled: response.sampled!.ids, kept: target!.response },
    testerLogprobs: probe.sampled!.logprobs,
  };
}

/**
 * Records are faithful, for a graph whose rows never filled a window: ids decode to the record's texts, sampled ids
 * are in the children's contexts, and the target's log-probabilities are those of its ids.
 */
export async function expectFaithful(system: ASTSystem, graph: Graph, target: string): Promise<void> {
  const models = system.parts as unknown as { tester: Decoding; target: Decoding };
  const text = (model: Decoding, ids: readonly number[]) => model.codec.decode(without(model, ids));
  const nodes = [...graph.nodes()];
  const check = (node: Node) => {
    const { tester, target: heard } = tokensOf(system, node);
    expect(text(models.tester, [...tester!.context, ...tester!.probe])).toBe(`${node.context}${node.probe}`);
    const prompt = String(system.promptForTarget(node.context, node.probe));
    expect(text(models.target, [...heard!.context, ...heard!.heard])).toBe(prompt);
    for (const child of node.children) {
      const before = [...tester!.context, ...tester!.probe];
      const tokens = tokensOf(system, child);
      if (tokens.edited !== true) expect(tokens.tester!.context.slice(0, before.length)).toEqual(before);
      check(child);
    }
  };
  graph.children.forEach(check);
  const rows = nodes.map((node) => heardRow(tokensOf(system, node)));
  const likelihoods = nodes.map(({ likelihood }) => [likelihood!.total]);
  const expected = (await recomputed(target, rows)).map((row) => [
    row.reduce((sum, value) => sum + value, 0),
  ]);
  expectClose(likelihoods, expected);
  expectClose(await logprobsOf(system, "getTargetLogprobs", nodes), await recomputed(target, rows));
}

interface Decoding {
  codec: { prefix: readonly number[]; decode(ids: readonly number[]): string };
}

const without = ({ codec }: Decoding, ids: readonly number[]) => ids.slice(codec.prefix.length);

/** One level of its own. */
export async function growLevel(system: System, requests: readonly ExpandRequest[]): Promise<Outcome[]> {
  try {
    return await expand(system, requests);
  } finally {
    system.release();
  }
}
