import type { Line, Node, NodeKey, Sources, TokensRecord } from "../core/index.js";

/**
 * The token ids behind one turn, as the models sampled and read them, so that nothing that was sampled is ever
 * tokenised again: encoding a decoded text can give other ids than those that made it.
 */
export class TurnTokens {
  /** The system that made the turn; no other can make sense of the ids. */
  readonly owner: object;
  /** null where the system has no tester of its own. */
  readonly tester: TesterTokens | null;
  /** null where somebody else than the system's own target was asked. */
  readonly target: TargetTokens | null;
  /**
   * Whether something here is not what the models sampled and read before: a method returned, or was asked to continue,
   * a text of its own, and that was encoded.
   */
  readonly edited: boolean;
  /** log P of each id of the tester's probe under the baseline; null until something has asked for it. */
  baselineLogprobs: readonly number[] | null;

  constructor({ owner, tester, target, edited, baselineLogprobs }: Omit<TurnTokens, "toRecord">) {
    this.owner = owner;
    this.tester = tester;
    this.target = target;
    this.edited = edited;
    this.baselineLogprobs = baselineLogprobs;
  }

  /** The ids as a record holds them. */
  toRecord(): TokensRecord {
    const { tester, target, edited } = this;
    const record: TokensRecord = {};
    if (tester !== null) {
      record.tester = { context: [...tester.context], ...said("probe", tester.probe, tester.lines) };
    }
    if (target !== null) {
      const { context, heard, probe, response, lines } = target;
      record.target = {
        context: [...context],
        heard: [...heard],
        probe: heard.slice(...probe),
        ...said("response", response, lines),
      };
    }
    if (edited) record.edited = true;
    return record;
  }
}

/** An utterance's ids that stay in the conversation, and the silent one that ended it, where there was one. */
function said<Name extends string>(name: Name, ids: readonly number[], lines: readonly Line[]) {
  const kept = lines.at(-1)!.ids!;
  return { [name]: [...kept], ...(ids.length > kept.length ? { end: ids[kept.length]! } : {}) } as {
    [key in Name]: number[];
  } & { end?: number };
}

/** The tester's side of a turn, in its ids. */
export interface TesterTokens {
  /** What the tester had before it when it spoke; shortened where its window was full. */
  readonly context: readonly number[];
  /** What it sampled, the id that ended the utterance included; encoded where the probe is not its own. */
  readonly probe: readonly number[];
  /** log P of each id of the probe under the tester that sampled it; null where it did not. */
  readonly logprobs: readonly number[] | null;
  /** What its conversation holds after the probe: all before it as one line, and the probe. */
  readonly lines: readonly Line[];
}

/** The target's side of a turn, in its ids. */
export interface TargetTokens {
  /** What the target had before it when it heard the probe; shortened where its window was full. */
  readonly context: readonly number[];
  /** What it then read: the probe, and what `promptForTarget` put around it. */
  readonly heard: readonly number[];
  /** Which of these ids are the probe, from and to; the others are scaffold. */
  readonly probe: readonly [from: number, to: number];
  /** log P of each of the probe's ids. */
  readonly logprobs: readonly number[];
  /** What it sampled, the id that ended the utterance included; encoded where the response is not its own. */
  readonly response: readonly number[];
  /** What its conversation holds after the response: all before the probe as one line, then line by line. */
  readonly lines: readonly Line[];
}

/** The ids behind a node; null when the system did not make it. */
export function tokensOf(owner: object, node: Node): TurnTokens | null {
  return node.tokens instanceof TurnTokens && node.tokens.owner === owner ? node.tokens : null;
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
    if (node === undefined || isKey(node)) return null;
    return node.context === context && node.probe === probes[row] ? tokensOf(owner, node) : null;
  });
}

/** A source that is a node's key, since the node is still growing. */
export const isKey = (source: Node | NodeKey): source is NodeKey => !("probe" in source);
