import { describeValue, UsageError } from "@astra-rl/torch";
import type { FinishReason } from "../generation/session-decode.js";

/** Who a message is from. "around": models read it, nobody said it, and it is never scored. */
export type From = "system" | "prompt" | "tester" | "target" | "around";

/** How a model sampled a message, in its own tokens. */
export interface Sampled {
  /** Name of the model. */
  readonly by: string;
  /** Whose ids: the tokenizer's `fingerprint`. */
  readonly tokens: string;
  /** All that was drawn, the end id included. */
  readonly ids: readonly number[];
  /** How many of the ids stay in the conversation: an end id without text does not. */
  readonly kept: number;
  /** log P of each id under the full distribution at temperature 1. */
  readonly logprobs: readonly number[];
  readonly finished: FinishReason;
  /** What it was sampled after. */
  readonly after: Conversation;
}

/**
 * One message of a conversation: an immutable value.
 *
 * It is no string: take its `text`, or put it into a template (`${message}`). In plain JavaScript the members of a string,
 * such as `length`, throw an error that says so.
 */
export class Message {
  /**
   * @param sampled null for a text that no model sampled: every model then reads whatever its tokenizer makes of it
   * @throws UsageError for a text that is no string
   */
  constructor(
    readonly from: From,
    readonly text: string,
    readonly sampled: Sampled | null = null,
  ) {
    if (typeof text !== "string") {
      throw new UsageError(`Message: the text must be a string, got ${describeValue(text)}`);
    }
    if (new.target === Message) Object.freeze(this);
  }

  toString(): string {
    return this.text;
  }

  toJSON(): string {
    return this.text;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `${this.from}: ${JSON.stringify(this.text)}`;
  }
}

for (const name of Object.getOwnPropertyNames(String.prototype)) {
  if (name in Message.prototype) continue;
  Object.defineProperty(Message.prototype, name, {
    get(): never {
      throw new UsageError(`Message.${name}: a message is no string; write message.text.${name}`);
    },
  });
}
/**
 * An immutable list of messages, at least one. Appending makes a longer conversation that shares this one; the same
 * messages appended to the same conversation are the same object, so that conversations can be compared by `===`.
 */
export class Conversation {
  /** Number of messages. */
  readonly depth: number;
  #longer: WeakMap<Message, Conversation> | undefined;

  private constructor(
    /** What stands before the last message; null where that is the first. */
    readonly parent: Conversation | null,
    readonly last: Message,
  ) {
    this.depth = (parent?.depth ?? 0) + 1;
    Object.freeze(this);
  }

  /** A text is a prompt. What begins with an utterance begins with an empty prompt. */
  static of(...messages: readonly [first: Message | string, ...others: Message[]]): Conversation {
    const [given, ...others] = messages;
    const first = typeof given === "string" ? plainMessage("prompt", given) : given;
    const isUtterance = first.from === "tester" || first.from === "target";
    const root = isUtterance ? plainMessage("prompt", "") : first;
    let made = roots.get(root);
    if (made === undefined) roots.set(root, (made = new Conversation(null, root)));
    return isUtterance ? made.append(first, ...others) : made.append(...others);
  }

  append(...messages: readonly Message[]): Conversation {
    return messages.reduce<Conversation>((made, message) => made.#with(message), this);
  }

  messages(): Message[] {
    return Array.from(beginnings(this), ({ last }) => last).reverse();
  }

  /** All that stands before a message; null where the message is not in here, or the first. */
  upTo(message: Message): Conversation | null {
    for (const { parent, last } of beginnings(this)) if (last === message) return parent;
    return null;
  }

  /** What stands before a message and before what is put around it; null where the message is not in here, or the first. */
  before(message: Message): Conversation | null {
    let at = this.upTo(message);
    while (at !== null && at.parent !== null && at.last.from === "around") at = at.parent;
    return at;
  }

  toString(): string {
    return this.messages().join("");
  }

  toJSON(): string {
    return this.toString();
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return JSON.stringify(this.toString());
  }

  #with(message: Message): Conversation {
    if (!(message instanceof Message)) {
      throw new UsageError(`Conversation.append: expected a Message, got ${describeValue(message)}`);
    }
    this.#longer ??= new WeakMap();
    let longer = this.#longer.get(message);
    if (longer === undefined) this.#longer.set(message, (longer = new Conversation(this, message)));
    return longer;
  }
}

/** A conversation and all that it begins with, the longest first. */
function* beginnings(conversation: Conversation): Generator<Conversation> {
  for (let at: Conversation | null = conversation; at !== null; at = at.parent) yield at;
}

const roots = new WeakMap<Message, Conversation>();

/** Messages that nobody said, by who they are from and what they say; those that were used last. */
const plain = new Map<string, Message>();
const MOST_PLAIN = 4096;

/** A prompt or what is put around utterances: the same object for the same text, as long as it is in use. */
function plainMessage(from: "prompt" | "around", text: string): Message {
  const name = `${from} ${text}`;
  const message = plain.get(name) ?? new Message(from, text);
  plain.delete(name);
  plain.set(name, message);
  if (plain.size > MOST_PLAIN) plain.delete(plain.keys().next().value!);
  return message;
}

/**
 * What a method returned, as a conversation. A text becomes that of `base` and `expected`, each of whose messages keeps its
 * ids wherever the text holds it, with the rest of the text around them. Messages are looked for from the end, since what
 * a method puts into a text usually precedes them.
 *
 * @param where begins the message of an error
 * @throws UsageError for anything else than a conversation or a text
 */
export function conversationOf(
  where: string,
  given: unknown,
  base: Conversation,
  expected: readonly Message[],
): Conversation {
  if (given instanceof Conversation) return given;
  if (typeof given !== "string") {
    throw new UsageError(`${where}: must return a Conversation or a text, got ${describeValue(given)}`);
  }
  const messages = base.messages();
  let [kept, end] = [0, 0];
  while (kept < messages.length && given.startsWith(messages[kept]!.text, end)) {
    end += messages[kept++]!.text.length;
  }
  let rest = given.slice(end);
  const added: Message[] = [];
  for (const message of [...messages.slice(Math.max(kept, 1)), ...expected].toReversed()) {
    const { text } = message;
    const at = rest.endsWith(text) ? rest.length - text.length : rest.lastIndexOf(text);
    // An empty message stands at the end of any text.
    if (at < 0) continue;
    const after = rest.slice(at + text.length);
    if (after !== "") added.unshift(plainMessage("around", after));
    added.unshift(message);
    rest = rest.slice(0, at);
  }
  if (kept === 0) return Conversation.of(rest).append(...added);
  if (rest !== "") added.unshift(plainMessage("around", rest));
  let start = base;
  while (start.depth > kept) start = start.parent!;
  return start.append(...added);
}

/**
 * What a method returned, as a message. A text that one of `candidates` says is that one, ids and all.
 *
 * @param where begins the message of an error
 * @throws UsageError for anything else than a message or a text
 */
export function messageOf(
  where: string,
  given: unknown,
  from: "tester" | "target",
  candidates: readonly Message[] = [],
): Message {
  if (given instanceof Message) return given.from === from ? given : new Message(from, given.text);
  if (typeof given !== "string") {
    throw new UsageError(`${where}: must return a Message or a text, got ${describeValue(given)}`);
  }
  return candidates.findLast(({ text }) => text === given) ?? new Message(from, given);
}
