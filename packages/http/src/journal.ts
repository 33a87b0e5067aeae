import { closeSync, existsSync, openSync, readSync } from "node:fs";
import { UsageError } from "@astra-rl/base";
import { z } from "zod";
import { Journal } from "@astra-rl/records";
import { replySchema, type Reply } from "./answer.js";
import { NOTHING, plus, type Cost } from "./budget.js";

const count = z.int().nonnegative();
const tokens = z.tuple([count, count]);

/** A call before it is sent, with the maximum number of tokens [input, output] that it can cost. */
const reservation = z.strictObject({ call: count, model: z.string(), reserved: tokens });

/** A completed call with its cost; and the reply, unless it failed. */
const settlement = z.strictObject({
  call: count,
  used: tokens,
  /** Identifies the request. */
  request: z.string().optional(),
  reply: replySchema.optional(),
});

const line = z.union([reservation, settlement]);

const BLOCK = 1 << 20;

/**
 * The calls of a run and their replies, one line each, on the disk before they are used: a resumed run repeats no
 * request, and knows its spending. Memory holds only the position of each reply in the file.
 */
export class AnswerJournal {
  readonly #file: Journal;
  #reader: number | null = null;
  #calls = 0;
  /** The line of each reply, by its request. */
  readonly #places = new Map<string, readonly [start: number, length: number]>();
  /** Number of replies of earlier processes. */
  readonly earlier: number;
  readonly #spent = new Map<string, Cost>();
  #pending: { text: string; written: (start: number) => void; failed: (error: unknown) => void }[] = [];
  #isWriting = false;

  /**
   * Opens a journal; the first call creates the file. Drops an unterminated last line, which a crash leaves.
   *
   * @param others journals of other processes of the run, whose replies are reused
   * @throws UsageError for an invalid line
   */
  constructor(
    readonly path: string,
    readonly others: readonly AnswerJournal[] = [],
  ) {
    this.#file = new Journal(path);
    try {
      if (existsSync(path)) this.#file.cut({ bytes: this.#read() });
      this.earlier = this.size;
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Its file, and those of other processes. */
  get paths(): string[] {
    return [this.path, ...this.others.map(({ path }) => path)];
  }

  /** Number of replies. */
  get size(): number {
    return this.others.reduce((sum, { size }) => sum + size, this.#places.size);
  }

  /** Cost of earlier calls to a model; unfinished ones, because the process was killed, count in full. */
  spent(model: string): Cost {
    return this.others.reduce(
      (sum, other) => plus(sum, other.spent(model)),
      this.#spent.get(model) ?? NOTHING,
    );
  }

  /** The reply to a request; undefined if there is none. */
  reply(request: string): Reply | undefined {
    const place = this.#places.get(request);
    if (place === undefined) {
      for (const other of this.others) {
        const reply = other.reply(request);
        if (reply !== undefined) return reply;
      }
      return undefined;
    }
    const [start, length] = place;
    const bytes = Buffer.alloc(length);
    readSync(this.#opened(), bytes, 0, length, start);
    return settlement.parse(JSON.parse(bytes.toString("utf8"))).reply;
  }

  /** Records a call before it is sent. @returns its number */
  async reserve(model: string, { input, output }: Cost): Promise<number> {
    const call = this.#calls++;
    await this.#append(JSON.stringify({ call, model, reserved: [input, output] }));
    return call;
  }

  /** Records how a call ended. */
  async settle(
    call: number,
    { input, output }: Cost,
    kept?: { request: string; reply: Reply },
  ): Promise<void> {
    const text = JSON.stringify({ call, used: [input, output], ...kept });
    const start = await this.#append(text);
    if (kept !== undefined) this.#places.set(kept.request, [start, Buffer.byteLength(text)]);
  }

  /** Keeps an answer that no call of this journal gave. */
  async keep(model: string, request: string, reply: Reply): Promise<void> {
    await this.settle(await this.reserve(model, NOTHING), NOTHING, { request, reply });
  }

  /** Records calls that were made before the journal was opened. */
  async charge(model: string, { calls, input, output }: Cost): Promise<void> {
    for (let call = 0; call < calls; call++) {
      const cost = call === 0 ? { calls: 1, input, output } : { ...NOTHING, calls: 1 };
      await this.settle(await this.reserve(model, cost), cost);
    }
  }

  close(): void {
    for (const other of this.others) other.close();
    this.#file.close();
    if (this.#reader !== null) closeSync(this.#reader);
    this.#reader = null;
  }

  #opened(): number {
    return (this.#reader ??= openSync(this.path, "r"));
  }

  /** Appends a line, durably. @returns its offset */
  #append(text: string): Promise<number> {
    return new Promise((written, failed) => {
      this.#pending.push({ text, written, failed });
      if (!this.#isWriting) void this.#write();
    });
  }

  /** Writes pending lines with one synchronization of the disk. */
  async #write(): Promise<void> {
    this.#isWriting = true;
    while (this.#pending.length > 0) {
      const batch = this.#pending;
      this.#pending = [];
      try {
        let start = this.#file.bytes;
        this.#file.append(batch.map(({ text }) => text));
        await this.#file.synchronize();
        for (const { text, written } of batch) {
          written(start);
          start += Buffer.byteLength(text) + 1;
        }
      } catch (error) {
        for (const { failed } of batch) failed(error);
      }
    }
    this.#isWriting = false;
  }

  /** Reads all lines. @returns the length of the complete ones in bytes */
  #read(): number {
    const open = new Map<number, { model: string; reserved: readonly [number, number] }>();
    const add = (model: string, [input, output]: readonly [number, number]) => {
      const { calls, input: before, output: after } = this.#spent.get(model) ?? NOTHING;
      this.#spent.set(model, { calls: calls + 1, input: before + input, output: after + output });
    };
    let [number, start] = [0, 0];
    let rest: Buffer = Buffer.alloc(0);
    const block = Buffer.alloc(BLOCK);
    for (let read = 0; ;) {
      const size = readSync(this.#opened(), block, 0, BLOCK, read);
      if (size === 0) break;
      read += size;
      rest = Buffer.concat([rest, block.subarray(0, size)]);
      for (let end = rest.indexOf(0x0a); end >= 0; end = rest.indexOf(0x0a)) {
        const entry = this.#parse(rest.toString("utf8", 0, end), ++number);
        this.#calls = Math.max(this.#calls, entry.call + 1);
        if ("reserved" in entry) open.set(entry.call, entry);
        else {
          const begun = open.get(entry.call);
          if (begun !== undefined) add(begun.model, entry.used);
          open.delete(entry.call);
          if (entry.request !== undefined) this.#places.set(entry.request, [start, end]);
        }
        start += end + 1;
        rest = rest.subarray(end + 1);
      }
    }
    for (const { model, reserved } of open.values()) add(model, reserved);
    return start;
  }

  #parse(text: string, number: number): z.infer<typeof line> {
    try {
      return line.parse(JSON.parse(text));
    } catch (cause) {
      throw new UsageError(
        "malformed-journal",
        `${this.path}:${number}: must be a line of a journal of answers; restore the file, or delete it to ` +
          `request everything again`,
        { cause },
      );
    }
  }
}
