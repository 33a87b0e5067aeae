import { Conversation, Message, type From, type Sampled } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/torch";
import { Graph } from "./graph.js";
import { NotedMessage, type ResponseNote } from "./model.js";
import { likelihoodOf, logprobsOf, type Node, type NodeFields } from "./node.js";

/**
 * Graphs as plain objects, which structured cloning copies exactly: numbers with all their bits, and what is one object
 * stays one. Unlike a record, a parcel keeps the sampled ids of messages, so that a graph is the same in every process.
 */
export interface GraphParcel {
  readonly context: StateParcel;
  readonly children: readonly NodeParcel[];
  readonly seed: number;
  readonly episode: number;
  readonly models: Readonly<Record<string, string>>;
}

interface NodeParcel {
  readonly context: StateParcel;
  readonly probe: StateParcel;
  readonly response: StateParcel;
  readonly judged: { readonly probe: StateParcel; readonly response: StateParcel } | null;
  /** The log-probabilities that the likelihood was made of. */
  readonly logprobs: readonly number[] | null;
  readonly children: readonly NodeParcel[];
  /** Name of the class. */
  readonly type: string;
  /** The other fields, including those of subclasses. */
  readonly rest: Readonly<Record<string, unknown>>;
}

interface MessageParcel {
  readonly from: From;
  readonly text: string;
  readonly sampled: (Omit<Sampled, "after"> & { readonly after: ConversationParcel }) | null;
  readonly note: ResponseNote | null;
}

interface ConversationParcel {
  readonly parent: ConversationParcel | null;
  readonly last: MessageParcel;
}

/** A state or a message; states of systems without text travel as they are. */
type StateParcel =
  | { readonly message: MessageParcel }
  | { readonly conversation: ConversationParcel }
  | { readonly value: unknown };

/** @throws UsageError for states and messages that are instances of the caller's own classes */
export function packGraphs<S, A>(graphs: readonly Graph<S, A>[]): GraphParcel[] {
  const packer = new Packer();
  return graphs.map((graph) => packer.graph(graph));
}

/**
 * @param makeNode creates the nodes, as the sampler does
 * @throws UsageError if `makeNode` creates nodes of another class
 */
export function unpackGraphs<S, A>(
  parcels: readonly GraphParcel[],
  makeNode: (fields: NodeFields<S, A>) => Node<S, A>,
): Graph<S, A>[] {
  const unpacker = new Unpacker(makeNode);
  return parcels.map((parcel) => unpacker.graph(parcel));
}

class Packer {
  readonly #messages = new Map<Message, MessageParcel>();
  readonly #conversations = new Map<Conversation, ConversationParcel>();

  graph<S, A>({ context, children, seed, episode, models }: Graph<S, A>): GraphParcel {
    return {
      context: this.#state(context),
      children: children.map((child) => this.#node(child)),
      seed,
      episode,
      models,
    };
  }

  #node<S, A>(node: Node<S, A>): NodeParcel {
    const { context, probe, response, judged, children, ...rest } = node;
    return {
      context: this.#state(context),
      probe: this.#state(probe),
      response: this.#state(response),
      judged:
        judged === null ? null : { probe: this.#state(judged.probe), response: this.#state(judged.response) },
      logprobs: node.likelihood === null ? null : logprobsOf(node.likelihood),
      children: children.map((child) => this.#node(child)),
      type: node.constructor.name,
      rest,
    };
  }

  #state(value: unknown): StateParcel {
    if (value instanceof Conversation) return { conversation: this.#conversation(value) };
    if (value instanceof Message) return { message: this.#message(value) };
    if (typeof value === "object" && value !== null && !isPlain(value)) {
      throw new UsageError(
        `distributed: a state or message of the class ${value.constructor.name} cannot travel between processes; use plain ` +
          "data (objects, arrays, typed arrays, Maps), or train in one process",
      );
    }
    return { value };
  }

  #conversation(conversation: Conversation): ConversationParcel {
    const known = this.#conversations.get(conversation);
    if (known !== undefined) return known;
    const { parent, last } = conversation;
    const parcel = {
      parent: parent === null ? null : this.#conversation(parent),
      last: this.#message(last),
    };
    this.#conversations.set(conversation, parcel);
    return parcel;
  }

  #message(message: Message): MessageParcel {
    const known = this.#messages.get(message);
    if (known !== undefined) return known;
    if (message.constructor !== Message && message.constructor !== NotedMessage) {
      throw new UsageError(
        `distributed: a message of the class ${message.constructor.name} cannot travel between processes; use Message`,
      );
    }
    const { from, text, sampled } = message;
    const parcel = {
      from,
      text,
      sampled: sampled === null ? null : { ...sampled, after: this.#conversation(sampled.after) },
      note: message instanceof NotedMessage ? message.note : null,
    };
    this.#messages.set(message, parcel);
    return parcel;
  }
}

class Unpacker<S, A> {
  readonly #messages = new Map<MessageParcel, Message>();
  readonly #conversations = new Map<ConversationParcel, Conversation>();

  constructor(readonly makeNode: (fields: NodeFields<S, A>) => Node<S, A>) {}

  graph({ context, children, seed, episode, models }: GraphParcel): Graph<S, A> {
    return new Graph({
      context: this.#state(context) as S,
      children: children.map((child) => this.#node(child)),
      seed,
      episode,
      models,
    });
  }

  #node({ context, probe, response, judged, logprobs, children, type, rest }: NodeParcel): Node<S, A> {
    const node = this.makeNode({
      ...rest,
      ...(logprobs === null ? {} : { likelihood: likelihoodOf(logprobs) }),
      context: this.#state(context),
      probe: this.#state(probe),
      response: this.#state(response),
      judged:
        judged === null ? null : { probe: this.#state(judged.probe), response: this.#state(judged.response) },
      children: children.map((child) => this.#node(child)),
    } as unknown as NodeFields<S, A>);
    if (node.constructor.name !== type) {
      throw new UsageError(
        `distributed: a node of the class ${type} came from another process, and this sampler makes ` +
          `${node.constructor.name}; give the sampler createNode, or override nodeFrom`,
      );
    }
    // Fields that the constructor of a subclass does not take.
    for (const [name, value] of Object.entries(rest)) {
      if (name !== "likelihood") (node as unknown as Record<string, unknown>)[name] = value;
    }
    return node;
  }

  #state(parcel: StateParcel): unknown {
    if ("conversation" in parcel) return this.#conversation(parcel.conversation);
    return "message" in parcel ? this.#message(parcel.message) : parcel.value;
  }

  #conversation(parcel: ConversationParcel): Conversation {
    const known = this.#conversations.get(parcel);
    if (known !== undefined) return known;
    const { parent, last } = parcel;
    const isPrompt = parent === null && last.from === "prompt" && last.sampled === null;
    // Prompts of one text are one object in a process, and what models have read of them is kept by object.
    const conversation = isPrompt
      ? Conversation.of(last.text)
      : parent === null
        ? Conversation.of(this.#message(last))
        : this.#conversation(parent).append(this.#message(last));
    this.#conversations.set(parcel, conversation);
    return conversation;
  }

  #message(parcel: MessageParcel): Message {
    const known = this.#messages.get(parcel);
    if (known !== undefined) return known;
    const { from, text, sampled, note } = parcel;
    const message =
      note === null
        ? new Message(
            from,
            text,
            sampled === null ? null : { ...sampled, after: this.#conversation(sampled.after) },
          )
        : new NotedMessage(from as "tester" | "target", text, note);
    this.#messages.set(parcel, message);
    return message;
  }
}

/** Whether structured cloning keeps the value's class. */
function isPlain(value: object): boolean {
  if (Array.isArray(value) || ArrayBuffer.isView(value)) return true;
  const prototype: unknown = Object.getPrototypeOf(value);
  return [Object.prototype, null, Map.prototype, Set.prototype, Date.prototype].includes(prototype as null);
}
