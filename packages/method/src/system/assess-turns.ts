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

interface AssessorParts {
  /** null: nothing is scored. */
  reward: Reward | null;
  /** By turn; null if no model provides likelihoods. */
  likelihoods: (turns: readonly Turn[]) => Promise<(Likelihood | null)[]>;
  retry: () => RetryOptions;
}

/** Assesses turns by the reward's terms; each turn in progress is assessed once, however often it is requested. */
export class TurnAssessor {
  /** Turns being assessed, with the result once there is one. */
  readonly #judged = new WeakMap<Conversation, Assessment | null>();

  constructor(readonly parts: AssessorParts) {}

  async judge(turns: readonly Turn[]): Promise<Assessment[]> {
    const { reward } = this.parts;
    if (reward === null) return [];
    const known = new Map(turns.map((turn) => [turn, this.#judged.get(turn.after) ?? null]));
    const missing = turns.filter((turn) => known.get(turn) === null);
    for (const [at, judged] of (await assessTurns(missing, reward, this.parts)).entries()) {
      const turn = missing[at]!;
      known.set(turn, judged);
      if (this.#judged.has(turn.after)) this.#judged.set(turn.after, judged);
    }
    return turns.map((turn) => known.get(turn)!);
  }

  /**
   * Scores and terms of turns, for the record, with the system's own rewards and failures.
   *
   * @param rewardsOf may call `judge`
   */
  async assess(
    turns: readonly Turn[],
    rewardsOf: () => Promise<readonly Assessment[]>,
  ): Promise<Assessment[]> {
    for (const { after } of turns) this.#judged.set(after, null);
    try {
      const rewards = await rewardsOf();
      // An override computed the reward on its own or from other texts: assess these turns anyway, for the record.
      await this.judge(turns.filter(({ after }) => this.#judged.get(after) === null));
      return rewards.map((assessment, row): Assessment => {
        const { reward, failure } = assessment;
        return { ...(this.#judged.get(turns[row]!.after) ?? assessment), reward, failure };
      });
    } finally {
      for (const { after } of turns) this.#judged.delete(after);
    }
  }
}

/** The reward of each turn by the reward's terms; failures are data. */
async function assessTurns(
  turns: readonly Turn[],
  reward: Reward,
  { likelihoods, retry }: AssessorParts,
): Promise<Assessment[]> {
  if (turns.length === 0) return [];
  const known = await attemptRows(
    "likelihood",
    turns.length,
    (rows) => likelihoods(rows.map((row) => turns[row]!)),
    retry(),
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
    retry(),
  );
  let at = 0;
  return failures.map((failure) =>
    failure === null ? assessed[at++]! : { reward: NaN, scores: {}, terms: {}, likelihood: null, failure },
  );
}

/** The probe that the target responds to: the last one; null if the target has already responded to it. */
export function lastProbe(prompt: Conversation): Message | null {
  for (let at: Conversation | null = prompt; at !== null && at.last.from !== "target"; at = at.parent) {
    if (at.last.from === "tester") return at.last;
  }
  return null;
}
