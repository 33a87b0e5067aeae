/** For tests over systems whose states and probes are plain texts, such as the bigram system. */
import { Conversation, Message } from "@astra-rl/lm";
import type { EvaluationRecord } from "@astra-rl/records";
import { Graph, Node, type NodeFields } from "../../src/tree/index.js";
import type { Algorithm } from "../../src/algorithm/index.js";
import { ASTEvaluator, type Evaluator, type ASTEvaluatorOptions } from "../../src/evaluation/index.js";
import type { Sampler } from "../../src/sampler/index.js";
import type { System } from "../../src/system/index.js";

export const TextNode = Node<string, string>;
export type TextNode = Node<string, string>;
export const TextGraph = Graph<string, string>;
export type TextGraph = Graph<string, string>;
export type TextSystem = System<string, string>;
export type TextAlgorithm = Algorithm<string, string>;

/** An evaluator, which reads states and probes as texts alone. */
export function textEvaluator(
  sampler: Sampler<string, string>,
  starts: readonly string[],
  options: ASTEvaluatorOptions,
): Evaluator<string, string, EvaluationRecord> {
  return new ASTEvaluator(sampler as unknown as Sampler, starts, options) as never;
}

type Texts = Record<"context" | "probe" | "response", string>;

/** Fields of a turn of a conversation from its texts. */
export function fieldsOf({
  context,
  probe,
  response,
  ...fields
}: Texts & Omit<NodeFields, keyof Texts>): NodeFields {
  return {
    context: Conversation.of(context),
    probe: new Message("tester", probe),
    response: new Message("target", response),
    ...fields,
  };
}
