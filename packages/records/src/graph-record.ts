import { z } from "zod";
import { goalSchema, type GoalRecord } from "./goal-record.js";
import { tokensSchema, type TokensRecord } from "./tokens-record.js";
import { linesParserOf, parserOf } from "./parse-record.js";
import {
  divergenceSchema,
  failureSchema,
  likelihoodSchema,
  RESPONSE_NOTES,
  toolCallSchema,
  type Divergence,
  type Failure,
  type Likelihood,
  type ResponseNote,
} from "./turn-record.js";

/**
 * One turn: `S` is the JSON of a state, `A` that of a probe. A field without content is absent.
 */
export interface TurnRecord<S = string, A = string> {
  context: S;
  probe: A;
  response: S;
  /** null for a turn that failed. */
  reward: number | null;
  scores?: Record<string, number>;
  cut?: readonly string[];
  terms?: Record<string, number>;
  likelihood?: Likelihood;
  failure?: Failure;
  /** What a server said about its response. */
  note?: ResponseNote;
  /** What an agent did before it responded, in order. */
  calls?: readonly z.infer<typeof toolCallSchema>[];
  /** Where the agent's session differs from the conversation above the turn. */
  diverged?: readonly Divergence[];
  /** Why the agent gave no answer, although what it did was judged: `response` is empty; absent where it answered. */
  unanswered?: Failure;
  /** Credit that training assigned to the turn; absent (not 0) if it was not assigned. */
  credit?: number;
  /** Token ids of the models' inputs and outputs; absent unless requested. */
  tokens?: TokensRecord;
}

/** A turn and its subtree; fields of Node subclasses come after `children`. */
export type NodeRecord<S = string, A = string> = TurnRecord<S, A> & {
  children: NodeRecord<S, A>[];
  [extra: string]: unknown;
};

/** A whole tree. `seed` and `episode` are the key of its random draws. */
export interface GraphRecord<S = string, A = string> {
  context: S;
  /** Only for a prompt of several messages. */
  promptMessages?: readonly (readonly [from: z.infer<typeof from>, text: string])[];
  /** What the tester was to achieve; absent for none. */
  goal?: GoalRecord;
  seed: number;
  episode: number;
  models?: Readonly<Record<string, string>>;
  children: NodeRecord<S, A>[];
  version: number;
  /** The training step of the graph; absent outside training. */
  step?: number;
  [extra: string]: unknown;
}

// Contexts and probes are strings in all built-in systems; systems with other states use their own JSON values.
const json = z.json() as unknown as z.ZodType<string>;
const numbers = z.record(z.string(), z.number()).optional();

const from = z.enum(["system", "prompt", "tester", "target", "around"]);

/** The messages of a prompt that has several: by whom, and the text. */
export const promptMessages = z.array(z.tuple([from, z.string()])).min(1);

/** Fields of the turns of agents. */
export const actionShape = {
  calls: z.array(toolCallSchema).readonly().optional(),
  diverged: z.array(divergenceSchema).readonly().optional(),
};

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
  ...actionShape,
  unanswered: failureSchema.optional(),
  credit: z.number().optional(),
  tokens: tokensSchema.optional(),
});

export const graphRecordSchema: z.ZodType<GraphRecord> = z.looseObject({
  context: json,
  promptMessages: promptMessages.optional(),
  goal: goalSchema.optional(),
  children: z.array(nodeRecordSchema),
  seed: z.number(),
  episode: z.int().nonnegative(),
  version: z.int().positive(),
  models: z.record(z.string(), z.string()).optional(),
  step: z.int().positive().optional(),
});

/** @throws UsageError if the text or value is not a graph record of a known version */
export const parseGraphRecord = parserOf(graphRecordSchema, "graph record");

/** Parses all lines of graphs.jsonl but for an unterminated last one. @throws UsageError for an invalid line */
export const parseGraphLines = linesParserOf(parseGraphRecord, "graphs.jsonl", "a graph record");
