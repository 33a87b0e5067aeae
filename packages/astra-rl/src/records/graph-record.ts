import { z } from "zod";
import {
  checkJudged,
  Conversation,
  failureSchema,
  Graph,
  likelihoodSchema,
  type Message,
  Node,
  type GraphJSON,
  type NodeFields,
  type NodeFactory,
  type NodeJSON,
  type TurnJSON,
} from "../core/index.js";
import { tokensSchema, type TokensRecord } from "./tokens-record.js";
import { finiteOrNull, parseLines, parseRecord, RECORD_VERSION, sortKeys } from "./parse-record.js";

/** One turn as its node's `toJSON` gives it, and what a record says beside it. */
export type TurnRecord<S = string, A = string> = TurnJSON<S, A> & {
  /** What training took the turn to be worth; absent where it was not judged, which is not 0. */
  credit?: number;
  /** The ids that the models read and said; absent unless asked for. */
  tokens?: TokensRecord;
};

/** A turn and what followed; fields of Node subclasses stand behind `children`. */
export type NodeRecord<S = string, A = string> = TurnRecord<S, A> & {
  children: NodeRecord<S, A>[];
  [extra: string]: unknown;
};

/** A whole tree. `seed` and `episode` name the draws it was made from. */
export type GraphRecord<S = string, A = string> = Omit<GraphJSON<S, A>, "children"> & {
  children: NodeRecord<S, A>[];
  version: number;
  /** The training step that the graph was grown for; absent outside of training. */
  step?: number;
  [extra: string]: unknown;
};

// Contexts and probes are strings in every system that ships; a system of other states brings its own JSON values.
const json = z.json() as unknown as z.ZodType<string>;
const numbers = z.record(z.string(), z.number()).optional();

/** What every record of a turn says. @param text of its states and messages */
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
  terms: numbers,
  likelihood: likelihoodSchema.optional(),
  failure: failureSchema.optional(),
  credit: z.number().optional(),
  tokens: tokensSchema.optional(),
});

export const graphRecordSchema: z.ZodType<GraphRecord> = z.looseObject({
  context: json,
  children: z.array(nodeRecordSchema),
  seed: z.number(),
  episode: z.int().nonnegative(),
  version: z.int().positive(),
  models: z.record(z.string(), z.string()).optional(),
  step: z.int().positive().optional(),
});

/** What a record says of a graph beside the graph itself. */
export interface GraphRecordOptions<S = Conversation, A = Message> {
  /** The training step that it was grown for. */
  step?: number;
  /** What training took each turn to be worth. */
  credit?: ReadonlyMap<Node<S, A>, number>;
  /** The ids behind a turn; null where nobody knows them. */
  tokensOf?: (node: Node<S, A>) => TokensRecord | null;
}

/** The record of a graph; takes a `Graph`, or what its `toJSON` gives, of which credit and tokens are not known. */
export function graphRecord<S, A>(
  graph: Graph<S, A> | GraphJSON<S, A>,
  options: GraphRecordOptions<S, A> = {},
): GraphRecord<S, A> {
  const nodes = graph instanceof Graph ? graph.children : null;
  if (graph instanceof Graph) checkJudged("graphRecord", graph.nodes());
  const { context, children, seed, episode, ...extra } = graph instanceof Graph ? graph.toJSON() : graph;
  const { step } = options;
  return {
    context,
    children: children.map((child, index) => nodeRecord(child, nodes?.[index] ?? null, options)),
    seed,
    episode,
    version: RECORD_VERSION,
    ...(step === undefined ? {} : { step }),
    ...extra,
  };
}

/** @param source the node that the JSON was made of; null where there is only JSON */
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
    record.failure = { stage: failure.stage, message: failure.message, attempts: failure.attempts };
  }
  const credit = source === null ? undefined : options.credit?.get(source);
  if (credit !== undefined && Number.isFinite(credit)) record.credit = credit;
  const tokens = source === null ? null : (options.tokensOf?.(source) ?? null);
  if (tokens !== null) record.tokens = tokens;
  return Object.assign(record, extra);
}

/** One line of JSON without a line break at its end; the same graph always gives the same bytes. */
export function stringifyGraph<S, A>(
  graph: Graph<S, A> | GraphJSON<S, A>,
  options: GraphRecordOptions<S, A> = {},
): string {
  return JSON.stringify(graphRecord(graph, options));
}

/** @throws UsageError when the text or value is no graph record of a known version */
export function parseGraphRecord(source: unknown, where = "graph record"): GraphRecord {
  return parseRecord(graphRecordSchema, where, source);
}

/**
 * All lines of a graphs.jsonl. A last line without its line break was torn by a crash and is left out.
 *
 * @throws UsageError for a line that is no graph record, with its number
 */
export function parseGraphLines(text: string, where = "graphs.jsonl"): GraphRecord[] {
  return parseLines(text, where, "a graph record", parseGraphRecord);
}

/**
 * The graph behind a record, of conversations and messages where it holds texts. They are nobody's samples: where ids are
 * needed, every model makes its own of the texts. What the record says of credit is in `creditFromRecord`.
 */
export function graphFromRecord(
  record: GraphRecord,
  createNode: NodeFactory = (fields) => new Node(fields),
): Graph {
  const toNode = (node: NodeRecord): Node => {
    // The rest is what subclasses of Node have added.
    const { context, reward, children, credit: _, tokens: __, ...rest } = node;
    return createNode({
      ...(rest as unknown as NodeFields),
      context: conversationOf(context),
      reward: reward ?? NaN,
      children: children.map(toNode),
    });
  };
  const { context, children, seed, episode, models = {} } = record;
  return new Graph({
    context: conversationOf(context),
    children: children.map(toNode),
    seed,
    episode,
    models,
  });
}

/** States of one's own stay as they are. */
const conversationOf = (state: unknown) =>
  (typeof state === "string" ? Conversation.of(state) : state) as Conversation;

/** What training took each turn to be worth, for the graph that was made of this record. */
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
