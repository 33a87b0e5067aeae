import { z } from "zod";
import { Graph, Node, type Failure, type GraphJSON, type NodeFactory, type NodeJSON } from "../core/index.js";
import { finiteOrNull, parseRecord, RECORD_VERSION, sortKeys } from "./parse-record.js";

/** One turn. Fields of Node subclasses (whatever their `toJSON` adds) follow behind `children`. */
export interface NodeRecord<S = string, A = string> {
  context: S;
  probe: A;
  response: S;
  /** null for a turn that failed. */
  reward: number | null;
  children: NodeRecord<S, A>[];
  /** Harm scores by name; absent when none were recorded. */
  scores?: Record<string, number>;
  /** Value of each term of the reward, before weights; absent for a reward without terms. */
  terms?: Record<string, number>;
  /** How likely the target finds the probe; absent where it is not measured. */
  likelihood?: { nll: number | null; total: number; tokens: number };
  /** Present when the turn failed. */
  failure?: { stage: Failure["stage"]; message: string; attempts: number };
  [extra: string]: unknown;
}

/** A whole tree. `seed` and `episode` name the draws it was made from. */
export interface GraphRecord<S = string, A = string> {
  context: S;
  children: NodeRecord<S, A>[];
  seed: number;
  episode: number;
  version: number;
  [extra: string]: unknown;
}

// Contexts and probes are strings in every system that ships; a system of other states brings its own JSON values.
const json: z.ZodType = z.json();

const nodeRecordSchema: z.ZodType<NodeRecord> = z.lazy(() =>
  z.looseObject({
    context: json,
    probe: json,
    response: json,
    reward: z.number().nullable(),
    children: z.array(nodeRecordSchema),
    scores: z.record(z.string(), z.number()).optional(),
    terms: z.record(z.string(), z.number()).optional(),
    likelihood: z
      .object({ nll: z.number().nullable(), total: z.number(), tokens: z.int().nonnegative() })
      .optional(),
    failure: z
      .object({
        stage: z.enum(["tester", "target", "scorer", "likelihood", "reward"]),
        message: z.string(),
        attempts: z.int().nonnegative(),
      })
      .optional(),
  }),
) as z.ZodType<NodeRecord>;

export const graphRecordSchema = z.looseObject({
  context: json,
  children: z.array(nodeRecordSchema),
  seed: z.number(),
  episode: z.int().nonnegative(),
  version: z.int().positive(),
}) as z.ZodType<GraphRecord>;

/** The record of a graph; takes a `Graph` or what its `toJSON` gives. */
export function graphRecord<S, A>(graph: Graph<S, A> | GraphJSON<S, A>): GraphRecord<S, A> {
  const { context, children, seed, episode, ...extra } = graph instanceof Graph ? graph.toJSON() : graph;
  return { context, children: children.map(nodeRecord), seed, episode, version: RECORD_VERSION, ...extra };
}

function nodeRecord<S, A>(node: NodeJSON<S, A>): NodeRecord<S, A> {
  const { context, probe, response, reward, children, scores, terms, likelihood, failure, ...extra } = node;
  const record: NodeRecord<S, A> = {
    context,
    probe,
    response,
    reward: reward === null ? null : finiteOrNull(reward),
    children: children.map(nodeRecord),
  };
  if (scores !== undefined) record.scores = sortKeys(scores);
  if (terms !== undefined) record.terms = sortKeys(terms);
  if (likelihood !== undefined) {
    record.likelihood = { nll: likelihood.nll, total: likelihood.total, tokens: likelihood.tokens };
  }
  if (failure !== undefined) {
    record.failure = { stage: failure.stage, message: failure.message, attempts: failure.attempts };
  }
  return Object.assign(record, extra);
}

/** One line of JSON without a line break at its end; the same graph always gives the same bytes. */
export function stringifyGraph<S, A>(graph: Graph<S, A> | GraphJSON<S, A>): string {
  return JSON.stringify(graphRecord(graph));
}

/** @throws UsageError when the text or value is no graph record of a known version */
export function parseGraphRecord(source: unknown, where = "graph record"): GraphRecord {
  return parseRecord(graphRecordSchema, where, source);
}

/** The graph behind a record. Token ids are not recorded, so its texts are tokenised anew where that is needed. */
export function graphFromRecord<S = string, A = string>(
  record: GraphRecord<S, A>,
  createNode: NodeFactory<S, A> = (fields) => new Node(fields),
): Graph<S, A> {
  const toNode = (node: NodeRecord<S, A>): Node<S, A> => {
    const { reward, children, scores, terms, likelihood, failure, ...rest } = node;
    return createNode({
      ...rest,
      reward: reward ?? NaN,
      children: children.map(toNode),
      scores: scores ?? {},
      terms: terms ?? {},
      likelihood: likelihood ?? null,
      failure: failure ?? null,
    });
  };
  const { context, children, seed, episode } = record;
  return new Graph({ context, children: children.map(toNode), seed, episode });
}
