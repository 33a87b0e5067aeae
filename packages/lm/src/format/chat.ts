import { UsageError } from "@astra-rl/base";
import type { ChatMessage, ChatTemplate } from "../chat-template.js";
import type { Conversation, Message } from "../conversation/conversation.js";
import type { Goal } from "../conversation/goal.js";
import type { Codec } from "./codec.js";
import {
  dropIds,
  EMPTY_PIECE,
  rowLength,
  type Format,
  type OwnIds,
  type Piece,
  type Row,
  type Span,
} from "./format.js";
import { groupByVoice, leadsProbe, PARAGRAPH, systemOf, type Voice, type VoiceGroup } from "./voices.js";

export const HISTORIES = ["template", "verbatim"] as const;

export interface ChatOptions {
  /** The role of the model: its messages are the assistant's, all others the user's. */
  role: "tester" | "target";
  /**
   * System prompt; a conversation's own system message replaces the target's. A tester's goal replaces `{goal}` in it, or follows it. A template that refuses system messages gets it at the
   * head of the first user message. Default: none, so that the template writes its own, if it has one.
   */
  system?: string;
  /** The template variable `enable_thinking`. Default false. */
  thinking?: boolean;
  /**
   * How earlier messages are written. template: as the template writes them now, like a server does, which may omit earlier
   * reasoning. verbatim: as the model read and sampled them. They differ only for templates that write a message
   * otherwise once others follow. Default: "template" for the target, "verbatim" for the tester.
   */
  history?: (typeof HISTORIES)[number];
  /** The date for templates that write one. Default: now. */
  date?: Date;
}

/** What a template writes before one content, and does to it. */
interface Slot {
  /** Ids before the content. */
  readonly front: readonly number[];
  /** Ids that the content directly follows. */
  readonly after: readonly number[];
  /** White space between them and the content, which is encoded together with it. */
  readonly space: string;
  readonly trimsStart: boolean;
  readonly trimsEnd: boolean;
  /** What the template omits of a content with reasoning that ends with `</think>`. */
  readonly omits: null | "reasoning" | "reasoning and space";
}

/** What a template writes around the contents of a sequence of messages. */
interface Scaffold {
  readonly slots: readonly Slot[];
  /** What follows the last content; if that is the user's, including the beginning of the assistant's. */
  readonly end: string;
  readonly endIds: readonly number[];
}

/**
 * Writes conversations with a checkpoint's chat template. The template renders each sequence of roles once, with marks in
 * place of contents; what it writes between two marks is encoded once, and the ids of contents are put in between. So
 * sampled ids are never encoded again, and template tokens are never scored.
 *
 * Template tokens and contents are encoded separately: ids equal those of Python's `apply_chat_template` unless the
 * tokenizer would merge across such a boundary, for example for a content that begins with a line break.
 */
export class ChatFormat implements Format {
  readonly endIds: readonly number[];
  readonly pinned: number;
  readonly layout?: (conversation: Conversation, own: OwnIds) => Row;
  readonly #role: "tester" | "target";
  readonly #system: string | null;
  readonly #variables: Readonly<Record<string, unknown>>;
  readonly #date: Date;
  readonly #takesSystem: boolean;
  readonly #scaffolds = new Map<string, Scaffold>();

  /** @throws UsageError for a template that refuses conversations of user and assistant, or changes their contents */
  constructor(
    readonly codec: Codec,
    readonly template: ChatTemplate,
    options: ChatOptions,
  ) {
    const { role, system = null, thinking = false, date = new Date() } = options;
    const { history = role === "target" ? "template" : "verbatim" } = options;
    this.#role = role;
    this.#system = system;
    this.#variables = { enable_thinking: thinking };
    this.#date = date;
    this.#takesSystem = this.#acceptsSystem();
    this.pinned = this.#scaffold(["user"], system).slots[0]!.front.length;
    this.endIds = this.#scaffold(["user", "assistant"], system)
      .endIds.slice(0, 1)
      .filter((id) => codec.isSpecial(id));
    if (history === "template") this.layout = (conversation, own) => this.#layout(conversation, own);
  }

  write(conversation: Conversation, own: readonly number[] | null): Piece {
    const { parent: before, last: message, goal } = conversation;
    const written = this.#slots(conversation.messages(), goal).at(-1)!;
    if (written === null) return EMPTY_PIECE;
    // What was read and sampled stays, reasoning included.
    const slot: Slot = { ...written, omits: null };
    const isCued = message.from === this.#role && before?.last.from !== this.#role;
    if (!isCued) return this.#piece(slot, message, own);
    // The cue before the model's own message includes what the template writes there.
    const after = before === null ? [] : this.cue(before);
    // Sampled ids directly follow it, without the white space that the template writes once they are history.
    const space = own === null ? slot.space : "";
    return this.#piece({ ...slot, front: [], after, space }, message, own);
  }

  cue(conversation: Conversation): readonly number[] {
    const messages = conversation.messages();
    const groups = groupByVoice(messages, this.#role);
    const system = this.#systemOf(messages, conversation.goal);
    if (groups.length > 0) return this.#scaffold(voicesOf(groups), system).endIds;
    const { slots, endIds } = this.#scaffold(["user"], system);
    return [...slots[0]!.front, ...endIds];
  }

  /**
   * Drops whole exchanges, the oldest first; the system prompt stays. Only if the last message alone is too long, it loses
   * its beginning.
   *
   * @throws UsageError if `room` cannot hold the template's own tokens
   */
  truncate(conversation: Conversation, row: Row, room: number, own: OwnIds): Row {
    const messages = conversation.messages();
    let shortest = row;
    for (const { voice, at } of groupByVoice(messages, this.#role).slice(1)) {
      const first = at[0]!;
      if (voice === "assistant" || row[first]!.ids.length === 0) continue;
      const isSystem = ({ from }: Message) => from === "system";
      const system = messages.slice(0, first).filter(isSystem);
      const slots = this.#slots([...system, ...messages.slice(first)], conversation.goal).slice(
        system.length,
      );
      shortest = row.map((piece, place) => {
        if (place < first) return EMPTY_PIECE;
        const slot = slots[place - first];
        const isWrittenAnew = place === first || this.layout !== undefined;
        if (!isWrittenAnew || slot === undefined || slot === null) return piece;
        return this.#piece(slot, messages[place]!, own(messages[place]!));
      });
      if (rowLength(shortest) <= room) return shortest;
    }
    const excess = rowLength(shortest) - room;
    const first = shortest.findIndex(({ ids }) => ids.length > 0);
    const start = shortest[first]!.body[0];
    const cue = row.length > messages.length ? row.at(-1)!.ids.length : 0;
    if (start + excess + cue > rowLength(shortest)) {
      throw new UsageError(
        "template-exceeds-window",
        `${this.template.where}: the template's own tokens (${start + cue}) need more of the context window than ` +
          `maxNewTokens leaves (${room}); lower maxNewTokens`,
      );
    }
    return dropIds(shortest, start, start + excess);
  }

  #layout(conversation: Conversation, own: OwnIds): Row {
    const messages = conversation.messages();
    const slots = this.#slots(messages, conversation.goal);
    return messages.map((message, at) => {
      const slot = slots[at]!;
      return slot === null ? EMPTY_PIECE : this.#piece(slot, message, own(message));
    });
  }

  #piece(slot: Slot, message: Message, own: readonly number[] | null): Piece {
    const { front, space, omits } = slot;
    let [text, ids] = [message.text, own];
    const reasoning = omits === null ? -1 : text.lastIndexOf(REASONING_END);
    if (reasoning >= 0) {
      const rest = text.slice(reasoning + REASONING_END.length);
      text = omits === "reasoning" ? rest : rest.trimStart();
      ids = own === null ? null : this.#endOf(own, text);
    }
    if (ids !== null) {
      // Sampled white space takes the place of the template's.
      const between = space === "" || /^\s/u.test(text) ? [] : this.codec.continue(space);
      return pieceOf([...front, ...between], ids);
    }
    if (slot.trimsStart) text = text.trimStart();
    if (slot.trimsEnd) text = text.trimEnd();
    return pieceOf(front, this.#encode(slot.after, space + text));
  }

  /** The last ids, whose text this is; null if it does not begin between two ids. */
  #endOf(ids: readonly number[], text: string): readonly number[] | null {
    for (let at = 0; at <= ids.length; at++) {
      const end = ids.slice(at);
      if (this.codec.decode(end, { skipSpecialTokens: false }) === text) return end;
    }
    return null;
  }

  /** Python encodes what follows a special token as a separate text, to which some tokenizers add a space. */
  #encode(after: readonly number[], text: string): readonly number[] {
    const last = after.at(-1);
    return last !== undefined && this.codec.isSpecial(last)
      ? this.codec.whole(text)
      : this.codec.continue(text);
  }

  /** What is written before each message; null for a system message, which is part of what precedes the first content. */
  #slots(messages: readonly Message[], goal: Goal | null): (Slot | null)[] {
    const groups = groupByVoice(messages, this.#role);
    // Some templates refuse a system message alone, or no message.
    if (groups.length === 0) return messages.map(() => null);
    const { slots } = this.#scaffold(voicesOf(groups), this.#systemOf(messages, goal));
    const found: (Slot | null)[] = messages.map(() => null);
    for (const [index, { at }] of groups.entries()) {
      const slot = slots[index]!;
      const isLed = index === 1 && groups[0]!.at.length === 0;
      let { space, trimsStart } = slot;
      let front = isLed ? [...slots[0]!.front, ...slot.front] : slot.front;
      let after = front;
      for (const [place, message] of at.entries()) {
        const { from, text } = messages[message]!;
        // The target's prompt is followed by the first probe, though that may not be there yet.
        const isEnd = place === at.length - 1 && !(from === "prompt" && this.#role === "target");
        const isSkipped = text === "" && !isEnd;
        const trimsEnd = slot.trimsEnd && isEnd;
        found[message] = { ...slot, front, after, space: isSkipped ? "" : space, trimsStart, trimsEnd };
        front = [];
        if (isSkipped) continue;
        const isPrompt = leadsProbe(messages[message]!, messages[at[place + 1]!]);
        if (isPrompt) front = this.codec.continue(PARAGRAPH);
        [after, space, trimsStart] = [front, "", false];
      }
    }
    return found;
  }

  #systemOf(messages: readonly Message[], goal: Goal | null): string | null {
    return systemOf(messages, this.#role, this.#system, goal);
  }

  #acceptsSystem(): boolean {
    const messages = [
      { role: "system", content: markOf(0) },
      { role: "user", content: markOf(1) },
    ];
    try {
      return this.#render(messages, true).includes(markOf(0));
    } catch (error) {
      if (error instanceof UsageError) return false;
      throw error;
    }
  }

  #scaffold(voices: readonly Voice[], system: string | null): Scaffold {
    const name = JSON.stringify([voices.map(([letter]) => letter).join(""), system]);
    const known = this.#scaffolds.get(name);
    if (known !== undefined) return known;
    const write = (contentOf: (at: number) => string) => {
      const messages: ChatMessage[] = voices.map((role, at) => ({ role, content: contentOf(at) }));
      if (system !== null && this.#takesSystem) messages.unshift({ role: "system", content: system });
      else if (system !== null) messages[0]!.content = `${system}${PARAGRAPH}${messages[0]!.content}`;
      return this.#render(messages, voices.at(-1) === "user");
    };
    const parts = this.#between(write(markOf), voices.length);
    const end = parts.pop()!;
    const spaced = write((at) => `${SPACE}${markOf(at)}${SPACE}`);
    const reasoned = write((at) =>
      voices[at] === "assistant"
        ? `<think>\n${reasonOf(at)}\n${REASONING_END}${PARAGRAPH}${markOf(at)}`
        : markOf(at),
    );
    const slots = parts.map((part, at): Slot => {
      const [before, after] = spaced.split(markOf(at)) as [string, string];
      const isOmitted = voices[at] === "assistant" && !reasoned.includes(reasonOf(at));
      const isSpaceKept = reasoned.includes(PARAGRAPH + markOf(at));
      const front = this.#frontOf(part, voices.slice(0, at), system);
      // The row is encoded as a separate text; its later parts follow other text.
      const ids = at === 0 ? this.codec.whole(front) : this.codec.continue(front);
      return {
        front: ids,
        after: ids,
        space: part.slice(front.length),
        trimsStart: !before.endsWith(SPACE),
        trimsEnd: !after.startsWith(SPACE),
        omits: !isOmitted ? null : isSpaceKept ? "reasoning" : "reasoning and space",
      };
    });
    const scaffold = { slots, end, endIds: this.codec.continue(end) };
    this.#scaffolds.set(name, scaffold);
    return scaffold;
  }

  /**
   * What is written before a content, without white space that the tokenizer may merge with it: the beginning of the
   * assistant's message where the template writes the same and only white space after it, else all but spaces at the end.
   */
  #frontOf(part: string, before: readonly Voice[], system: string | null): string {
    if (before.at(-1) === "user") {
      const { end } = this.#scaffold(before, system);
      if (part.startsWith(end) && part.slice(end.length).trim() === "") return end;
    }
    return part.replace(/ +$/u, "");
  }

  /** What is written before each mark and after the last one. */
  #between(text: string, count: number): string[] {
    const parts: string[] = [];
    let from = 0;
    for (let at = 0; at < count; at++) {
      const mark = markOf(at);
      const found = text.indexOf(mark, from);
      if (found < 0 || text.split(mark).length !== 2) {
        throw new UsageError(
          "template-alters-content",
          `${this.template.where}: must write the content of each message once, in order and unchanged, but ` +
            `does not do so for message ${at + 1} of ${count}; use format: plain, or another template`,
        );
      }
      parts.push(text.slice(from, found));
      from = found + mark.length;
    }
    return [...parts, text.slice(from)];
  }

  #render(messages: readonly ChatMessage[], addGenerationPrompt: boolean): string {
    return this.template.render(messages, {
      addGenerationPrompt,
      variables: this.#variables,
      date: this.#date,
    });
  }
}

const SPACE = "\n \n";
const REASONING_END = "</think>";

/** Stands for the content of message `at`: no text or template contains it, and no filter changes it. */
const markOf = (at: number) => `QvXz${at}zXvQ`;
const reasonOf = (at: number) => `QrXz${at}zXrQ`;

const voicesOf = (groups: readonly VoiceGroup[]): Voice[] => groups.map(({ voice }) => voice);

function pieceOf(front: readonly number[], body: readonly number[]): Piece {
  const span: Span = [front.length, front.length + body.length];
  return { ids: [...front, ...body], body: span };
}
