import { Conversation, type From, type Goal, type Message } from "@astra-rl/lm";
import { jsonOf, type JSONOf, type Node, type NodeJSON } from "./node.js";

export interface GraphFields<S = Conversation, A = Message> {
  context: S;
  children?: Node<S, A>[];
  seed?: number;
  episode?: number;
  models?: Readonly<Record<string, string>>;
}

/** The messages of a prompt that is a conversation: origin and text. */
export type PromptMessagesJSON = readonly (readonly [from: From, text: string])[];

export interface GraphJSON<S = Conversation, A = Message> {
  context: JSONOf<S>;
  /** Only for a prompt of several messages. */
  promptMessages?: PromptMessagesJSON;
  goal?: Goal;
  seed: number;
  episode: number;
  models?: Readonly<Record<string, string>>;
  children: NodeJSON<S, A>[];
}

/** The tree of turns that grew from one prompt. */
export class Graph<S = Conversation, A = Message> {
  /** The prompt: the state before the first probe. */
  context: S;
  /** The first turns; empty for depth 0. */
  children: Node<S, A>[];
  /** With `episode`, determines every random draw of this graph. */
  seed: number;
  episode: number;
  /** Name of the model that took part, by role; roles with only one model are left out. */
  models: Readonly<Record<string, string>>;

  constructor({ context, children = [], seed = 0, episode = 0, models = {} }: GraphFields<S, A>) {
    this.context = context;
    this.children = children;
    this.seed = seed;
    this.episode = episode;
    this.models = models;
  }

  /** What the tester is to achieve in it; null for none. */
  get goal(): Goal | null {
    return this.context instanceof Conversation ? this.context.goal : null;
  }

  /** Every node, parents before children, siblings in order (depth first). */
  *nodes(): Generator<Node<S, A>> {
    const pending = [...this.children].reverse();
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      yield node;
      for (let child = node.children.length - 1; child >= 0; child--) pending.push(node.children[child]!);
    }
  }

  /** Every set of siblings, children of the prompt first. */
  *siblings(): Generator<readonly Node<S, A>[]> {
    if (this.children.length > 0) yield this.children;
    for (const node of this.nodes()) if (node.children.length > 0) yield node.children;
  }

  /** The path of first children, which is the whole conversation in an evaluation rollout. */
  path(): Node<S, A>[] {
    const turns: Node<S, A>[] = [];
    for (let node = this.children[0]; node !== undefined; node = node.children[0]) turns.push(node);
    return turns;
  }

  toJSON(): GraphJSON<S, A> {
    const promptMessages = promptMessagesOf(this.context);
    return {
      context: jsonOf(this.context),
      ...(promptMessages === null ? {} : { promptMessages }),
      ...(this.goal === null ? {} : { goal: this.goal }),
      seed: this.seed,
      episode: this.episode,
      ...(Object.keys(this.models).length > 0 ? { models: this.models } : {}),
      children: this.children.map((child) => child.toJSON()),
    };
  }
}

/** The messages of a prompt that has several, with their origins, which one text would not show. null for any other. */
export function promptMessagesOf(context: unknown): PromptMessagesJSON | null {
  if (!(context instanceof Conversation) || context.depth === 1) return null;
  return context.messages().map(({ from, text }) => [from, text]);
}
