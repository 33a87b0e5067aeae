import type { Conversation, Message } from "@astra-rl/lm";
import type { Likelihood } from "@astra-rl/records";
import { attemptRows, checkPaired, type Assessment, type NodeKey, type RetryOptions } from "../tree/index.js";
import type { Reward } from "../reward/index.js";

/** A turn to be judged. */
export interface Turn {
  readonly context: Conversation;
  readonly probe: Message;
  readonly response: Message;
  readonly key: NodeKey | undefined;
  /** The conversation after the turn; the same object for the same turn. */
  readonly after: Conversation;
}

export function turnsOf(
  where: string,
  contexts: readonly Conversation[],
  probes: readonly Message[],
  responses: readonly Message[],
  keys: readonly NodeKey[] | undefined,
): Turn[] {
  checkPaired(where, contexts, probes);
  checkPaired(where, contexts, responses);
  return contexts.map((context, row) => {
    const [probe, response] = [probes[row]!, responses[row]!];
    return { context, probe, response, key: keys?.[row], after: context.append(probe, response) };
  });
}

export interface AssessorParts {
  reward: Reward;
  /** By turn; null if no model provides likelihoods. */
  likelihoods: (turns: readonly Turn[]) => Promise<(Likelihood | null)[]>;
  retry: RetryOptions;
}

/** Likelihood, scores, terms and reward of each turn; failures are data. */
export async function assessTurns(
  turns: readonly Turn[],
  { reward, likelihoods, retry }: AssessorParts,
): Promise<Assessment[]> {
  if (turns.length === 0) return [];
  const known = await attemptRows(
    "likelihood",
    turns.length,
    (rows) => likelihoods(rows.map((row) => turns[row]!)),
    retry,
  );
  // Without a likelihood that the reward needs, a turn cannot be judged.
  const failures = known.map(({ failure }) => (reward.needsLikelihood ? failure : null));
  const told = turns.map(({ context, probe, response, key }, row) => ({
    context: context.toString(),
    conversation: context,
    probe: probe.text,
    response: response.text,
    key: key ?? { seed: 0, episode: 0, node: row },
    likelihood: known[row]!.value ?? null,
    testerLogprobs: probe.sampled?.logprobs ?? null,
  }));
  const assessed = await reward.assess(
    told.filter((_, row) => failures[row] === null),
    retry,
  );
  let at = 0;
  return failures.map((failure) =>
    failure === null ? assessed[at++]! : { reward: NaN, scores: {}, terms: {}, likelihood: null, failure },
  );
}

/** Assessments of turns in progress, by the conversation after the turn, which is the same object for equal turns. */
export class TurnsInProgress {
  readonly #assessed = new WeakMap<Conversation, Assessment[]>();

  begin(turns: readonly Turn[], assessments: readonly Assessment[]): void {
    for (const [row, { after }] of turns.entries()) {
      this.#assessed.set(after, [...(this.#assessed.get(after) ?? []), assessments[row]!]);
    }
  }

  end(turns: readonly Turn[]): void {
    for (const { after } of turns) this.#assessed.delete(after);
  }

  /** The assessment of each turn, equal turns in their order; undefined for one that is not in progress. */
  of(turns: readonly Turn[]): (Assessment | undefined)[] {
    const counts = new Map<Conversation, number>();
    return turns.map(({ after }) => {
      const count = counts.get(after) ?? 0;
      counts.set(after, count + 1);
      const assessed = this.#assessed.get(after);
      return assessed?.[Math.min(count, assessed.length - 1)];
    });
  }
}

/** The probe that the target responds to: the last one; null if the target has already responded to it. */
export function lastProbe(prompt: Conversation): Message | null {
  for (let at: Conversation | null = prompt; at !== null && at.last.from !== "target"; at = at.parent) {
    if (at.last.from === "tester") return at.last;
  }
  return null;
}
