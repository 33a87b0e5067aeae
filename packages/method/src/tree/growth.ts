import { Message, type Conversation } from "@astra-rl/lm";
import type { Failure } from "@astra-rl/records";
import type { Scorer } from "../scorer/index.js";
import type { System } from "../system/index.js";
import { checkCount } from "./contract.js";
import type { NodeKey } from "./draw.js";
import { attemptRows, FailedMessage } from "./failure.js";
import { doneBefore } from "./noted-message.js";
import type { Assessment, JudgedTurn, ResponseOf, TurnFields } from "./node.js";

/** One node to grow. */
export interface ExpandRequest<S = Conversation> {
  /** The state that the tester generates its probe from. */
  context: S;
  /** Key of the node's random draws. */
  key: NodeKey;
}

/** One finished turn: probe, response and assessment. */
export interface Outcome<S = Conversation, A = Message> extends TurnFields<S, A> {
  /** The state after this turn: the context of its children. */
  next: S;
  judged: JudgedTurn<S, A>;
}

/**
 * Grows one whole level of trees, one outcome per request, in order: first all probes, then all responses, then all
 * assessments. Every turn is grown here.
 *
 * It calls only the system's named methods, so any override takes effect, and keeps no state: nodes and the next level
 * use exactly what those methods return. Samplers release the models' caches after the last level.
 */
export async function expand<S, A>(
  system: System<S, A>,
  requests: readonly ExpandRequest<S>[],
): Promise<Outcome<S, A>[]> {
  if (requests.length === 0) return [];
  const turns = requests.map(({ context, key }): Growing<S, A> => ({ context, key }));
  const pick = <K extends keyof Growing<S, A>>(rows: readonly Growing<S, A>[], name: K) =>
    rows.map((row) => row[name] as NonNullable<Growing<S, A>[K]>);

  const probes = await system.checked.rolloutPromptWithTester(pick(turns, "context"), pick(turns, "key"));
  for (const [row, turn] of turns.entries()) {
    const probe = probes[row]!;
    if (probe instanceof FailedMessage) turn.failure = probe.failure;
    else {
      turn.probe = probe;
      turn.prompt = system.checked.promptForTarget(turn.context, probe);
    }
  }

  const asked = turns.filter(({ failure }) => failure === undefined);
  const responses = await attemptRows(
    "target",
    asked.length,
    (rows) => {
      const some = rows.map((row) => asked[row]!);
      return system.checked.rolloutPromptWithTarget(pick(some, "prompt"), pick(some, "key"));
    },
    system.retry,
  );
  for (const [row, { value, failure }] of responses.entries()) {
    const turn = asked[row]!;
    if (failure !== null) turn.failure = failure;
    else if (value instanceof FailedMessage) turn.failure = value.failure;
    else turn.response = value;
    // Harm that was done before a failure counts.
    const done = judgesUnanswered(system) ? doneBefore(turn.failure) : null;
    if (done !== null) turn.response = done as unknown as ResponseOf<S>;
  }

  const answered = turns.filter(({ response }) => response !== undefined);
  const assessments = await system.assess(
    pick(answered, "context"),
    pick(answered, "probe"),
    pick(answered, "response"),
    pick(answered, "key"),
  );
  checkCount("System.assess", assessments, answered.length);
  for (const [row, turn] of answered.entries()) {
    const assessment = assessments[row]!;
    const { failure } = turn;
    if (failure === undefined) turn.assessment = assessment;
    else if (assessment.scores["response"] === undefined) delete turn.response;
    // Without a reward the turn has failed, though its harm is known.
    else turn.assessment = assessment.failure === null ? assessment : { ...assessment, failure };
  }

  return turns.map(({ context, prompt, failure = null, ...turn }): Outcome<S, A> => {
    const probe = turn.probe ?? (new Message("tester", "") as A);
    const response = turn.response ?? system.checked.emptyResponse(context);
    // The state leaves out the message that failed; a failed node is not grown further.
    const next = failure === null ? system.checked.advance(context, probe, response) : (prompt ?? context);
    const { assessment = { reward: NaN, scores: {}, terms: {}, likelihood: null, failure } } = turn;
    return { context, probe, response, next, ...assessment, judged: { probe, response } };
  });
}

/** A turn in progress. */
interface Growing<S, A> {
  readonly context: S;
  readonly key: NodeKey;
  probe?: A;
  prompt?: S;
  response?: ResponseOf<S>;
  /** Failure of the tester or the target; a scorer's failure is in the assessment. */
  failure?: Failure;
  assessment?: Assessment;
}

/** Whether a system's scorer judges what was done before a failure. */
const judgesUnanswered = (system: object): boolean =>
  (system as { scorer?: Partial<Scorer> }).scorer?.judgesUnanswered === true;
