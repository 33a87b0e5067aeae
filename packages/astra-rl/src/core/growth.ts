import { AstraError, UsageError } from "@astra-rl/torch";
import { Message, type Conversation } from "@astra-rl/lm";
import { checkCount } from "./checks.js";
import type { NodeKey } from "./draw.js";
import { attemptRows, FailedMessage } from "./failure.js";
import type { JudgedTurn, TurnFields } from "./node.js";
import type { System } from "./system.js";

/** One node to grow. */
export interface ExpandRequest<S = Conversation> {
  /** The state in which the tester speaks. */
  context: S;
  /** Names the node's draws. */
  key: NodeKey;
}

/** What the tester and the target said, and what it was worth. */
export interface Outcome<S = Conversation, A = Message> extends TurnFields<S, A> {
  /** The state after this turn: the context of its children. */
  next: S;
  judged: JudgedTurn<S, A>;
}

/**
 * Grows trees level by level: all probes of a level, then all responses, then what they were worth. There is no other
 * way to grow.
 *
 * It calls nothing but the system's named methods, so that whatever of them is overridden counts, and remembers nothing:
 * what they return is what the nodes hold and what the next level builds on.
 */
export class Growth<S = Conversation, A = Message> {
  readonly #system: System<S, A>;
  #closed = false;

  /** @throws UsageError for a system that overrides a method that no longer has a say */
  constructor(system: System<S, A>) {
    for (const name of ["expand", "openGrowth", "growthMemory"]) {
      if (!(name in system)) continue;
      throw new UsageError(
        `${system.constructor.name}.${name}: growing calls a system's named methods only; override ` +
          `rolloutPromptWithTester, promptForTarget, rolloutPromptWithTarget, assess, reward or advance instead`,
      );
    }
    this.#system = system;
  }

  /** Grows one whole level: one outcome for each request, in order. */
  async expand(requests: readonly ExpandRequest<S>[]): Promise<Outcome<S, A>[]> {
    if (this.#closed) throw new AstraError("internal: a growth was used after it was closed");
    if (requests.length === 0) return [];
    const system = this.#system;
    const turns = requests.map(({ context, key }): Growing<S, A> => ({ context, key }));
    const pick = <K extends keyof Growing<S, A>>(rows: readonly Growing<S, A>[], name: K) =>
      rows.map((row) => row[name] as NonNullable<Growing<S, A>[K]>);

    const probes = await system.rolloutPromptWithTesterAndValidate(
      pick(turns, "context"),
      pick(turns, "key"),
    );
    for (const [row, turn] of turns.entries()) {
      turn.probe = probes[row]!;
      if (probes[row] instanceof FailedMessage) turn.failure = probes[row].failure;
      else turn.prompt = system.promptForTargetAndValidate(turn.context, turn.probe);
    }

    const asked = turns.filter(({ failure }) => failure === undefined);
    const responses = await attemptRows(
      "target",
      asked.length,
      (rows) => {
        const some = rows.map((row) => asked[row]!);
        return system.rolloutPromptWithTargetAndValidate(pick(some, "prompt"), pick(some, "key"));
      },
      system.retry,
    );
    for (const [row, response] of responses.entries()) {
      const turn = asked[row]!;
      if (response.failure !== null) turn.failure = response.failure;
      else if (response.value instanceof FailedMessage) turn.failure = response.value.failure;
      else turn.response = response.value;
    }

    const answered = turns.filter(({ failure }) => failure === undefined);
    const assessments = await system.assess(
      pick(answered, "context"),
      pick(answered, "probe"),
      pick(answered, "response"),
      pick(answered, "key"),
    );
    checkCount("System.assess", assessments, answered.length);
    const worth = new Map(answered.map((turn, row) => [turn, assessments[row]!]));

    return turns.map((turn): Outcome<S, A> => {
      const { context, probe: said, prompt = context, failure } = turn;
      const assessment = worth.get(turn);
      if (assessment === undefined) {
        // The state stops before what never came; a failed node is not grown further.
        const probe = said instanceof FailedMessage ? (new Message("tester", "") as A) : said!;
        const response = system.emptyResponseAndValidate(context);
        const nothing = { reward: NaN, scores: {}, terms: {}, likelihood: null };
        return {
          context,
          probe,
          response,
          next: prompt,
          ...nothing,
          failure: failure!,
          judged: { probe, response },
        };
      }
      const [probe, response] = [said!, turn.response!];
      const next = system.advanceAndValidate(context, probe, response);
      return {
        context,
        probe,
        response,
        next,
        ...assessment,
        judged: { probe, response },
      };
    });
  }

  /** Frees what models kept for this growth. Nodes stay usable. */
  close(): void {
    this.#closed = true;
    this.#system.release();
  }
}

/** A turn while it grows. */
interface Growing<S, A> {
  readonly context: S;
  readonly key: NodeKey;
  probe?: A;
  prompt?: S;
  response?: TurnFields<S, A>["response"];
  failure?: TurnFields<S, A>["failure"] & object;
}
