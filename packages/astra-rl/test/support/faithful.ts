import { loadCausalLM, tokenLogprobs, type ScoredRow } from "@astra-rl/lm";
import { noGrad } from "@astra-rl/torch";
import { expect } from "vitest";
import { Growth, type ExpandRequest, type Graph, type Node, type Outcome, type System } from "../../src/core/index.js";
import type { ASTSystem, TurnTokens } from "../../src/system/index.js";

export const tokensOf = (node: Node): TurnTokens => node.tokens as TurnTokens;

/** Ids of the tester's probe that stay in its conversation. */
export const keptProbe = (node: Node): readonly number[] => tokensOf(node).tester!.lines.at(-1)!.ids!;

/** Ids of the target's response that stay in its conversation. */
export const keptResponse = (node: Node): readonly number[] => tokensOf(node).target!.lines.at(-1)!.ids!;

/** Ids of the probe as the target read it. */
export function heardProbe(node: Node): readonly number[] {
  const { heard, probe } = tokensOf(node).target!;
  return heard.slice(...probe);
}

/** What tokenLogprobs says of rows, one by one, without any cache. */
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

/**
 * What is recorded is what happened, for a graph whose rows never filled a window: ids decode to the record's texts, what
 * was sampled stands in the children's contexts, and the target's log-probabilities are those of its ids.
 */
export async function expectFaithful(system: ASTSystem, graph: Graph, target: string): Promise<void> {
  const speakers = system.parts as unknown as { tester: Decoding; target: Decoding };
  const text = (speaker: Decoding, ids: readonly number[]) => speaker.codec.decode(without(speaker, ids));
  const rows: ScoredRow[] = [];
  const recorded: number[][] = [];
  const check = (node: Node) => {
    const { tester, target: heard } = tokensOf(node);
    if (tester !== null) {
      expect(text(speakers.tester, [...tester.context, ...keptProbe(node)])).toBe(node.context + node.probe);
    }
    if (heard !== null) {
      const prompt = system.promptForTarget(node.context, node.probe);
      expect(text(speakers.target, [...heard.context, ...heard.heard])).toBe(prompt);
      rows.push({ context: [...heard.context, ...heard.heard.slice(0, heard.probe[0])], continuation: heardProbe(node) });
      recorded.push([...heard.logprobs]);
    }
    for (const child of node.children) {
      const before = [...tester!.context, ...keptProbe(node)];
      if (!tokensOf(child).edited) expect(tokensOf(child).tester!.context.slice(0, before.length)).toEqual(before);
      check(child);
    }
  };
  graph.children.forEach(check);
  expectClose(recorded, await recomputed(target, rows));
}

interface Decoding {
  codec: { prefix: readonly number[]; decode(ids: readonly number[]): string };
}

const without = ({ codec }: Decoding, ids: readonly number[]) => ids.slice(codec.prefix.length);

/** The ids and numbers of a turn in one flat view. */
export function turn(node: Node) {
  const { tester, target, baselineLogprobs } = tokensOf(node);
  return {
    testerContext: tester!.context,
    targetContext: target!.context,
    probe: { sampled: tester!.probe, kept: keptProbe(node), heard: heardProbe(node) },
    response: { sampled: target!.response, kept: keptResponse(node) },
    testerLogprobs: tester!.logprobs!,
    targetLogprobs: target!.logprobs,
    baselineLogprobs,
  };
}

/** One level of its own. */
export async function growLevel(
  system: System,
  requests: readonly ExpandRequest[],
): Promise<Outcome[]> {
  const growth = new Growth(system);
  try {
    return await growth.expand(requests);
  } finally {
    growth.close();
  }
}
