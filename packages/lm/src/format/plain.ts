import { UsageError } from "@astra-rl/torch";
import type { Codec } from "./codec.js";
import type { ConversationFormat, Layout, Line, Piece, Span, Voice } from "./conversation-format.js";

export interface PlainOptions {
  /** Scaffold in front of a line, by who says it, such as `{ other: "User: ", self: "Bot: " }`. Default: none. */
  labels?: Readonly<Partial<Record<Voice, string>>>;
  /** Scaffold between two lines, such as "\n". Default: none. */
  separator?: string;
  /** Who speaks behind the opening: the model itself (a tester) or the other one (a target). Default "self". */
  first?: "self" | "other";
}

/**
 * Utterances follow each other as one text. Its ids are those of the utterances, unchanged: where a text was cut into
 * utterances, there is a cut between ids.
 */
export class PlainFormat implements ConversationFormat {
  readonly name = "plain";
  readonly codec: Codec;
  readonly endIds: readonly number[] = [];
  readonly #labels: Readonly<Partial<Record<Voice, string>>>;
  readonly #separator: string;
  readonly #first: "self" | "other";

  constructor(codec: Codec, { labels = {}, separator = "", first = "self" }: PlainOptions = {}) {
    this.codec = codec;
    this.#labels = labels;
    this.#separator = separator;
    this.#first = first;
  }

  append(lines: readonly Line[], line: Line): Piece {
    const row = new Row(this.codec, lines.length > 0);
    // The scaffold in front of the model's own line stands there already, since it had to speak behind it.
    const isPrompted = line.voice === "self" && this.#prompts(lines.at(-1));
    if (!isPrompted) row.scaffold((lines.length > 0 ? this.#separator : "") + this.#label(line.voice));
    const body = row.body(line);
    if (this.#prompts(line)) row.scaffold(this.#separator + this.#label("self"));
    return { ids: row.ids, body };
  }

  layout(lines: readonly Line[]): Layout {
    const ids: number[] = [];
    const bodies: Span[] = [];
    let pinned = this.codec.prefix.length;
    lines.forEach((line, at) => {
      const piece = this.append(lines.slice(0, at), line);
      const [from, to] = piece.body;
      bodies.push([ids.length + from, ids.length + to]);
      ids.push(...piece.ids);
      if (line.voice === "system" && lines.slice(0, at).every(({ voice }) => voice === "system"))
        pinned = ids.length;
    });
    return { ids: lines.length > 0 ? ids : [...this.codec.prefix], bodies, pinned };
  }

  /** Drops ids, the oldest first, behind the prefix and what the system says; the rest of a line stays a line. */
  fit(lines: readonly Line[], window: number, room: number): Line[] {
    const limit = window - room;
    const whole = this.layout(lines);
    if (whole.ids.length <= limit) return [...lines];
    // A line that comes to stand in front keeps the ids that it had behind others.
    let kept = lines.map((line, at): Line => ({ ...line, ids: whole.ids.slice(...whole.bodies[at]!) }));
    for (;;) {
      const { ids, pinned } = this.layout(kept);
      const excess = ids.length - limit;
      if (excess <= 0) return kept;
      const oldest = kept.findIndex(({ voice }) => voice !== "system");
      if (oldest < 0) {
        throw new UsageError(
          `PlainFormat.fit: the ${pinned} tokens that may not be dropped and ${room} more do not fit the model's ` +
            `window of ${window}; shorten the system prompt or let the model say less`,
        );
      }
      const { voice, ids: all = [] } = kept[oldest]!;
      const rest = all.slice(excess);
      const cut: Line = { voice, text: this.codec.decode(rest, { skipSpecialTokens: false }), ids: rest };
      kept = [...kept.slice(0, oldest), ...(rest.length > 0 ? [cut] : []), ...kept.slice(oldest + 1)];
    }
  }

  #label(voice: Voice): string {
    return this.#labels[voice] ?? "";
  }

  /** Whether the model itself speaks behind a line. */
  #prompts(line: Line | undefined): boolean {
    if (line === undefined) return false;
    return line.voice === "other" || (line.voice === "opening" && this.#first === "self");
  }
}

/** Ids that are put together from texts; the first text of a row brings the prefix with it. */
class Row {
  readonly ids: number[] = [];
  readonly #codec: Codec;
  #begun: boolean;

  constructor(codec: Codec, begun: boolean) {
    this.#codec = codec;
    this.#begun = begun;
  }

  scaffold(text: string): void {
    if (text === "") return;
    this.ids.push(...(this.#begun ? this.#codec.continue(text) : this.#codec.begin(text)));
    this.#begun = true;
  }

  body({ text, ids }: Line): Span {
    const from = this.#begun ? this.ids.length : this.#codec.prefix.length;
    if (this.#begun) this.ids.push(...(ids ?? this.#codec.continue(text)));
    else this.ids.push(...(ids === undefined ? this.#codec.begin(text) : [...this.#codec.prefix, ...ids]));
    this.#begun = true;
    return [from, this.ids.length];
  }
}
