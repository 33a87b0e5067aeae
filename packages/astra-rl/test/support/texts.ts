/** For tests over systems whose states and probes are plain texts, such as the bigram system. */
import {
  Conversation,
  Graph,
  Message,
  Node,
  type Algorithm,
  type Evaluator,
  type NodeFields,
  type Sampler,
  type System,
} from "../../src/core/index.js";
import { ASTEvaluator, type ASTEvaluatorOptions } from "../../src/evaluation/index.js";
import type { EvaluationRecord } from "../../src/records/index.js";

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
