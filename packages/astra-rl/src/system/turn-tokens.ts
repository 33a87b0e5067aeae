import type { Node, Sources } from "../core/index.js";

/**
 * The token ids behind one turn, as the models sampled and read them, so that nothing that was sampled is ever
 * tokenised again: encoding a decoded text can give other ids than those that made it.
 */
export interface TurnTokens {
  /** The system that made the turn; no other can make sense of the ids. */
  readonly owner: object;
  /** What the tester had read when it spoke, in its ids; shortened where its window was full. */
  readonly testerContext: readonly number[];
  /** What the target had read before the probe, in its ids; shortened where its window was full. */
  readonly targetContext: readonly number[];
  readonly probe: SpokenTokens;
  readonly response: SpokenTokens;
  /** log P of each sampled id of the probe under the tester that sampled it (full distribution, temperature 1). */
  readonly testerLogprobs: readonly number[];
  /** log P of each id of `probe.heard` under the target. */
  readonly targetLogprobs: readonly number[];
  /** log P of each sampled id of the probe under the baseline; null until something has asked for it. */
  baselineLogprobs: readonly number[] | null;
}

/** The ids of one utterance. */
export interface SpokenTokens {
  /** What the speaker sampled, the id that ended the utterance included. */
  readonly sampled: readonly number[];
  /** What stays in the speaker's conversation: a special end token is no part of the text. */
  readonly kept: readonly number[];
  /** What the other model reads, in its own ids. */
  readonly heard: readonly number[];
}

/** What both models have before them after a turn: the contexts of its children. */
export function nextContexts(tokens: TurnTokens): { tester: readonly number[]; target: readonly number[] } {
  const { testerContext, targetContext, probe, response } = tokens;
  return {
    tester: [...testerContext, ...probe.kept, ...response.heard],
    target: [...targetContext, ...probe.heard, ...response.kept],
  };
}

/**
 * The ids behind the pairs of a batch: null for a pair that came from elsewhere, from another system, or whose texts
 * were changed since.
 */
export function turnTokens(
  owner: object,
  contexts: readonly string[],
  probes: readonly string[],
  sources: Sources | undefined,
): (TurnTokens | null)[] {
  return contexts.map((context, row) => {
    const node = sources?.[row];
    if (node === undefined || node.context !== context || node.probe !== probes[row]) return null;
    return tokensOf(owner, node);
  });
}

/** The ids behind a node; null when the system did not make it. */
export function tokensOf(owner: object, node: Node): TurnTokens | null {
  const tokens = node.tokens as TurnTokens | undefined;
  return typeof tokens === "object" && tokens !== null && tokens.owner === owner ? tokens : null;
}
