// Between the graphs of a rollout and their records.
import { Conversation, goalOf, Message } from "@astra-rl/lm";
import {
  finiteOrNull,
  RECORD_VERSION,
  sortKeys,
  type GraphRecord,
  type NodeRecord,
  type TokensRecord,
} from "@astra-rl/records";
import { Graph, type GraphJSON } from "./graph.js";
import { checkJudged, Node, type JSONOf, type NodeFactory, type NodeFields, type NodeJSON } from "./node.js";
import { NotedMessage, type MessageNotes } from "./noted-message.js";

/** The record of a graph with states `S` and probes `A`: messages and conversations become their texts. */
type RecordOf<S, A> = GraphRecord<JSONOf<S>, JSONOf<A>>;

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
): RecordOf<S, A> {
  const nodes = graph instanceof Graph ? graph.children : null;
  if (graph instanceof Graph) checkJudged("graphRecord", graph.nodes());
  const { context, promptMessages, goal, children, seed, episode, ...extra } =
    graph instanceof Graph ? graph.toJSON() : graph;
  const { step } = options;
  return {
    context,
    ...(promptMessages === undefined ? {} : { promptMessages }),
    ...(goal === undefined ? {} : { goal: { ...goal } }),
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
): NodeRecord<JSONOf<S>, JSONOf<A>> {
  const { context, probe, response, reward, children, scores, terms, likelihood, failure, ...extra } = node;
  const record: NodeRecord<JSONOf<S>, JSONOf<A>> = {
    context,
    probe,
    // The JSON of a response is that of a state: a text, or a state itself.
    response: response as JSONOf<S>,
    reward: reward === null ? null : finiteOrNull(reward),
    children: children.map((child, index) => nodeRecord(child, source?.children[index] ?? null, options)),
  };
  if (scores !== undefined) record.scores = sortKeys(scores);
  if (terms !== undefined) record.terms = sortKeys(terms);
  if (likelihood !== undefined) {
    record.likelihood = { nll: likelihood.nll, total: likelihood.total, tokens: likelihood.tokens };
  }
  if (failure !== undefined) {
    const { stage, message, attempts, ...rest } = failure;
    record.failure = { stage, message, attempts, ...rest };
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

/**
 * Restores the graph of a record; texts become conversations and messages. They carry no sampled token ids: each
 * model tokenizes the text itself when ids are needed. For the record's credit, see `creditFromRecord`.
 */
export function graphFromRecord(
  record: GraphRecord,
  createNode: NodeFactory = (fields) => new Node(fields),
): Graph {
  const { context, promptMessages, goal, children, seed, episode, models = {} } = record;
  /** Custom states are returned unchanged. */
  const restored = (state: unknown): Conversation => {
    if (typeof state === "string") return restored(Conversation.of(state));
    if (goal === undefined || !(state instanceof Conversation)) return state as Conversation;
    return state.withGoal(goalOf(goal));
  };
  const toNode = (node: NodeRecord): Node => {
    // `rest` holds the fields of Node subclasses.
    const {
      context,
      reward,
      children,
      credit: _,
      tokens: __,
      note,
      calls,
      diverged,
      unanswered,
      ...rest
    } = node;
    const notes = { note, calls, diverged, unanswered };
    const isNoted = Object.values(notes).some((each) => each !== undefined);
    return createNode({
      ...(rest as unknown as NodeFields),
      ...(isNoted ? { response: new NotedMessage("target", rest.response, notes as MessageNotes) } : {}),
      context: restored(context),
      reward: reward ?? NaN,
      children: children.map(toNode),
    });
  };
  const [first, ...others] = (promptMessages ?? []).map(([from, text]) => new Message(from, text));
  return new Graph({
    context: restored(first === undefined ? context : Conversation.of(first, ...others)),
    children: children.map(toNode),
    seed,
    episode,
    models,
  });
}

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
