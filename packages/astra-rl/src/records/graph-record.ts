import { z } from "zod";
import {
  checkJudged,
  Conversation,
  failureSchema,
  Graph,
  likelihoodSchema,
  Message,
  Node,
  NotedMessage,
  RESPONSE_NOTES,
  type GraphJSON,
  type NodeFields,
  type NodeFactory,
  type NodeJSON,
  type TurnJSON,
} from "../core/index.js";
import { tokensSchema, type TokensRecord } from "./tokens-record.js";
import { finiteOrNull, linesParserOf, parserOf, RECORD_VERSION, sortKeys } from "./parse-record.js";

/** One turn as in its node's `toJSON`, with the record's additional fields. */
export type TurnRecord<S = string, A = string> = TurnJSON<S, A> & {
  /** Credit that training assigned to the turn; absent (not 0) if it was not assigned. */
  credit?: number;
  /** Token ids of the models' inputs and outputs; absent unless requested. */
  tokens?: TokensRecord;
};

/** A turn and its subtree; fields of Node subclasses come after `children`. */
export type NodeRecord<S = string, A = string> = TurnRecord<S, A> & {
  children: NodeRecord<S, A>[];
  [extra: string]: unknown;
};

/** A whole tree. `seed` and `episode` are the key of its random draws. */
export type GraphRecord<S = string, A = string> = Omit<GraphJSON<S, A>, "children"> & {
  children: NodeRecord<S, A>[];
  version: number;
  /** The training step of the graph; absent outside training. */
  step?: number;
  [extra: string]: unknown;
};

// Contexts and probes are strings in all built-in systems; systems with other states use their own JSON values.
const json = z.json() as unknown as z.ZodType<string>;
const numbers = z.record(z.string(), z.number()).optional();

/** The messages of a prompt that has several: by whom, and the text. */
export const promptMessages = z
  .array(z.tuple([z.enum(["system", "prompt", "tester", "target", "around"]), z.string()]))
  .min(1);

/** Fields of every turn record. @param text schema of its states and messages */
export const turnShape = <Text extends z.ZodType<string>>(text: Text) => ({
  context: text,
  probe: text,
  response: text,
  /** null for a turn that failed. */
  reward: z.number().nullable(),
});

const nodeRecordSchema: z.ZodType<NodeRecord> = z.looseObject({
  ...turnShape(json),
  children: z.array(z.lazy(() => nodeRecordSchema)),
  scores: numbers,
  cut: z.array(z.string()).optional(),
  terms: numbers,
  likelihood: likelihoodSchema.optional(),
  failure: failureSchema.optional(),
  note: z.enum(RESPONSE_NOTES).optional(),
  credit: z.number().optional(),
  tokens: tokensSchema.optional(),
});

export const graphRecordSchema: z.ZodType<GraphRecord> = z.looseObject({
  context: json,
  promptMessages: promptMessages.optional(),
  children: z.array(nodeRecordSchema),
  seed: z.number(),
  episode: z.int().nonnegative(),
  version: z.int().positive(),
  models: z.record(z.string(), z.string()).optional(),
  step: z.int().positive().optional(),
});

/** Additional data for a graph record. */
export interface GraphRecordOptions<S = Conversation, A = Message> {
  /** The training step of the graph. */
  step?: number;
  /** Credit that training assigned to each turn. */
  credit?: ReadonlyMap<Node<S, A>, number>;
  /** The token ids of a turn; null if unknown. */
  tokensOf?: (node: Node<S, A>) => TokensRecord | null;
}

/** Creates the record of a `Graph`, or of its `toJSON` value, which has no credit or tokens. */
export function graphRecord<S, A>(
  graph: Graph<S, A> | GraphJSON<S, A>,
  options: GraphRecordOptions<S, A> = {},
): GraphRecord<S, A> {
  const nodes = graph instanceof Graph ? graph.children : null;
  if (graph instanceof Graph) checkJudged("graphRecord", graph.nodes());
  const { context, promptMessages, children, seed, episode, ...extra } =
    graph instanceof Graph ? graph.toJSON() : graph;
  const { step } = options;
  return {
    context,
    ...(promptMessages === undefined ? {} : { promptMessages }),
    children: children.map((child, index) => nodeRecord(child, nodes?.[index] ?? null, options)),
    seed,
    episode,
    version: RECORD_VERSION,
    ...(step === undefined ? {} : { step }),
    ...extra,
  };
}

/** @param source the node behind the JSON; null if there is only JSON */
function nodeRecord<S, A>(
  node: NodeJSON<S, A>,
  source: Node<S, A> | null,
  options: GraphRecordOptions<S, A>,
): NodeRecord<S, A> {
  const { context, probe, response, reward, children, scores, terms, likelihood, failure, ...extra } = node;
  const record: NodeRecord<S, A> = {
    context,
    probe,
    response,
    reward: reward === null ? null : finiteOrNull(reward),
    children: children.map((child, index) => nodeRecord(child, source?.children[index] ?? null, options)),
  };
  if (scores !== undefined) record.scores = sortKeys(scores);
  if (terms !== undefined) record.terms = sortKeys(terms);
  if (likelihood !== undefined) {
    record.likelihood = { nll: likelihood.nll, total: likelihood.total, tokens: likelihood.tokens };
  }
  if (failure !== undefined) {
    const { stage, message, attempts, cause } = failure;
    record.failure = { stage, message, attempts, ...(cause === undefined ? {} : { cause }) };
  }
  const credit = source === null ? undefined : options.credit?.get(source);
  if (credit !== undefined && Number.isFinite(credit)) record.credit = credit;
  const tokens = source === null ? null : (options.tokensOf?.(source) ?? null);
  if (tokens !== null) record.tokens = tokens;
  return Object.assign(record, extra);
}

/** One line of JSON without a trailing newline; the same graph always gives the same bytes. */
export function stringifyGraph<S, A>(
  graph: Graph<S, A> | GraphJSON<S, A>,
  options: GraphRecordOptions<S, A> = {},
): string {
  return JSON.stringify(graphRecord(graph, options));
}

/** @throws UsageError if the text or value is not a graph record of a known version */
export const parseGraphRecord = parserOf(graphRecordSchema, "graph record");

/** Parses all lines of graphs.jsonl but for an unterminated last one. @throws UsageError for an invalid line */
export const parseGraphLines = linesParserOf(parseGraphRecord, "graphs.jsonl", "a graph record");

/**
 * Restores the graph of a record; texts become conversations and messages. They carry no sampled token ids: each
 * model tokenizes the text itself when ids are needed. For the record's credit, see `creditFromRecord`.
 */
export function graphFromRecord(
  record: GraphRecord,
  createNode: NodeFactory = (fields) => new Node(fields),
): Graph {
  const toNode = (node: NodeRecord): Node => {
    // `rest` holds the fields of Node subclasses.
    const { context, reward, children, credit: _, tokens: __, note, ...rest } = node;
    return createNode({
      ...(rest as unknown as NodeFields),
      ...(note === undefined ? {} : { response: new NotedMessage("target", rest.response, note) }),
      context: conversationOf(context),
      reward: reward ?? NaN,
      children: children.map(toNode),
    });
  };
  const { context, promptMessages, children, seed, episode, models = {} } = record;
  const [first, ...others] = (promptMessages ?? []).map(([from, text]) => new Message(from, text));
  return new Graph({
    context: first === undefined ? conversationOf(context) : Conversation.of(first, ...others),
    children: children.map(toNode),
    seed,
    episode,
    models,
  });
}

/** Custom states are returned unchanged. */
const conversationOf = (state: unknown) =>
  (typeof state === "string" ? Conversation.of(state) : state) as Conversation;

/** The credit of each turn, keyed by the nodes of the graph restored from this record. */
export function creditFromRecord<S, A>(record: GraphRecord, graph: Graph<S, A>): Map<Node<S, A>, number> {
  const credit = new Map<Node<S, A>, number>();
  const visit = (records: readonly NodeRecord[], nodes: readonly Node<S, A>[]): void => {
    for (const [index, node] of nodes.entries()) {
      const from = records[index]!;
      if (from.credit !== undefined) credit.set(node, from.credit);
      visit(from.children, node.children);
    }
  };
  visit(record.children, graph.children);
  return credit;
}
