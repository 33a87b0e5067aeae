import { UsageError } from "@astra-rl/base";
import type { Conversation, Message } from "@astra-rl/lm";
import type { Failure } from "@astra-rl/records";
import type { GenerateOptions, Model, Work } from "../models/index.js";
import type { NodeKey } from "../tree/index.js";

/**
 * Several models in one role. Each episode uses one of them, so that siblings stay comparable; the choice is made per
 * row.
 */
export class ModelPool implements Model {
  readonly name: string;
  readonly role;

  /**
   * @param choose index of the member for a node's episode
   * @throws UsageError for no members
   */
  constructor(
    readonly members: readonly Model[],
    readonly choose: (key: NodeKey) => number,
  ) {
    const [first] = members;
    if (first === undefined) throw new UsageError("empty", "ModelPool: needs at least one member, got none");
    const names = members.map(({ name }) => name);
    const twice = names.find((name, at) => names.indexOf(name) !== at);
    if (twice !== undefined) {
      throw new UsageError(
        "duplicate-name",
        `ModelPool: graphs name the members, but two are named "${twice}"; rename one`,
      );
    }
    this.name = first.name;
    this.role = first.role;
  }

  get tellsLikelihood(): boolean {
    return this.members.every((member) => member.tellsLikelihood);
  }

  get work(): Required<Work> {
    const total = { read: 0, generated: 0, trained: 0 };
    for (const { work } of this.members) {
      total.read += work.read;
      total.generated += work.generated;
      total.trained += work.trained ?? 0;
    }
    return total;
  }

  generate(
    conversations: readonly Conversation[],
    { keys, score, ends = false }: GenerateOptions,
  ): Promise<(Message | Failure)[]> {
    return this.#each(keys, (member, pick) =>
      member.generate(pick(conversations), {
        keys: pick(keys),
        ends,
        score: score && pick(score),
      }),
    );
  }

  logprobs(
    conversations: readonly Conversation[],
    messages: readonly Message[],
    keys: readonly NodeKey[] = conversations.map((_, node) => ({ seed: 0, episode: 0, node })),
  ): Promise<(readonly number[])[]> {
    return this.#each(keys, (member, pick) => {
      if (member.logprobs === undefined)
        throw new UsageError("no-likelihood", `${member.name}: cannot compute likelihoods`);
      return member.logprobs(pick(conversations), pick(messages));
    });
  }

  release(): void {
    for (const member of this.members) member.release();
  }

  dispose(): void {
    for (const member of this.members) member.dispose();
  }

  /**
   * Calls each member once with all its rows, and returns the results in row order. Members are called concurrently,
   * since some wait for servers; if one fails, the others are awaited, so that no call is in flight afterwards.
   */
  async #each<T>(
    keys: readonly NodeKey[],
    ask: (member: Model, pick: <V>(values: readonly V[]) => V[]) => Promise<readonly T[]>,
  ): Promise<T[]> {
    const places = keys.map((key) => this.choose(key));
    const answers: T[] = [];
    const asked = this.members.map(async (member, place) => {
      const rows = places.flatMap((own, row) => (own === place ? [row] : []));
      if (rows.length === 0) return;
      const said = await ask(member, (values) => rows.map((row) => values[row]!));
      rows.forEach((row, at) => (answers[row] = said[at]!));
    });
    const ended = await Promise.allSettled(asked);
    for (const each of ended) if (each.status === "rejected") throw each.reason;
    return answers;
  }
}

/** The model of a role that generates at a node. */
export function memberAt(model: Model, key: NodeKey): Model {
  return model instanceof ModelPool ? model.members[model.choose(key)]! : model;
}

/** All models of a role. */
export const membersOf = (model: Model | undefined): readonly Model[] =>
  model === undefined ? [] : model instanceof ModelPool ? model.members : [model];
