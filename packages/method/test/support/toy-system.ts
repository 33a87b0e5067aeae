import { keyedUniform } from "@astra-rl/base";
import type { Tensor } from "@astra-rl/torch";
import type { Conversation, Message } from "@astra-rl/lm";
import type { NodeKey, TokenTable } from "../../src/tree/index.js";
import type { Scorer } from "../../src/scorer/index.js";
import type { Reward } from "../../src/reward/index.js";
import { ASTSystem, type ASTSystemOptions } from "../../src/system/index.js";
import { table } from "./table.js";

const WORDS = ["please ", "tell ", "me ", "why ", "you ", "are ", "so ", "bad ", ""];

/**
 * A conversation of single words, every one drawn by its key alone; log-probabilities are a fixed function of the
 * characters: character c has log P = −(1 + code mod 7) / 10, whatever the context.
 */
export class ToySystem extends ASTSystem {
  /** Rows of each rollout call, in order: how the calls were batched. */
  readonly batches: { tester: number[]; target: number[] } = { tester: [], target: [] };

  constructor(scorer: Scorer, { reward, ...options }: ASTSystemOptions & { reward?: Reward } = {}) {
    super({ scorer, ...(reward === undefined ? {} : { reward }) }, options);
  }

  override rolloutPromptWithTester(
    contexts: readonly Conversation[],
    keys: readonly NodeKey[] = [],
  ): Promise<string[]> {
    this.batches.tester.push(contexts.length);
    return Promise.resolve(contexts.map((context, row) => word(`${context}`, "tester", keys[row])));
  }

  override rolloutPromptWithTarget(
    prompts: readonly Conversation[],
    keys: readonly NodeKey[] = [],
  ): Promise<string[]> {
    this.batches.target.push(prompts.length);
    return Promise.resolve(prompts.map((prompt, row) => word(`${prompt}`, "target", keys[row])));
  }

  override getTesterLogprobs(
    _: readonly Conversation[],
    continuations: readonly Message[],
  ): Promise<TokenTable> {
    return Promise.resolve(
      table(
        continuations.map(({ text }) => toyLogprobs(text)),
        true,
      ),
    );
  }

  override getBaselineLogprobs(
    _: readonly Conversation[],
    continuations: readonly Message[],
  ): Promise<TokenTable> {
    return Promise.resolve(table(continuations.map(({ text }) => toyLogprobs(text))));
  }

  override getTargetLogprobs(
    _: readonly Conversation[],
    continuations: readonly Message[],
  ): Promise<TokenTable> {
    return Promise.resolve(table(continuations.map(({ text }) => toyLogprobs(text))));
  }

  override parameters(): Iterable<Tensor> {
    return [table([[0]], true).values];
  }
}

/** log P of each character of a text in the toy world. */
export function toyLogprobs(text: string): number[] {
  return Array.from(text, (character) => -(1 + (character.codePointAt(0)! % 7)) / 10);
}

function word(context: string, stream: string, key: NodeKey = { seed: 0, episode: 0, node: 0 }): string {
  const draw = keyedUniform({ ...key, stream }, context.length);
  return WORDS[Math.floor(draw * WORDS.length)]!;
}
