import { closeSync, existsSync, fdatasync, openSync, readSync, truncateSync, write } from "node:fs";
import { promisify } from "node:util";
import { explainDiskErrors, UsageError } from "@astra-rl/torch";
import { z } from "zod";
import { NOTHING, type Cost } from "./budget.js";

const writeBytes = promisify(write);
const synchronize = promisify(fdatasync);

const count = z.int().nonnegative();
const tokens = z.tuple([count, count]);

/** A call before it is sent, with the most tokens [input, output] that it can cost. */
const reservation = z.strictObject({ call: count, model: z.string(), reserved: tokens });

/** A call that ended, with what it cost; and the answer, unless it failed. */
const settlement = z.strictObject({
  call: count,
  used: tokens,
  /** Identifies the request. */
  request: z.string().optional(),
  answer: z.unknown().optional(),
});

const line = z.union([reservation, settlement]);

const BLOCK = 1 << 20;

/**
 * The calls of a run and their answers, one line each, on the disk before they are used: a run that was killed asks
 * nothing twice, and knows what it spent. Only the places of answers are kept in memory.
 */
export class AnswerJournal {
  #handle: number | null = null;
  #bytes = 0;
  #calls = 0;
  /** Where the line of an answer is, by its request. */
  readonly #places = new Map<string, readonly [start: number, length: number]>();
  readonly #spent = new Map<string, Cost>();
  #pending: { text: string; written: (start: number) => void; failed: (error: unknown) => void }[] = [];
  #isWriting = false;

  /**
   * Opens a journal; the first call creates the file. Drops an unterminated last line, which a crash leaves.
   *
   * @throws UsageError for a line that is none of a journal
   */
  constructor(readonly path: string) {
    if (!existsSync(path)) return;
    try {
      this.#read(this.#opened());
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Number of answers. */
  get size(): number {
    return this.#places.size;
  }

  /** What earlier calls to a model cost; those without an end, because the process was killed, all that they reserved. */
  spent(model: string): Cost {
    return this.#spent.get(model) ?? NOTHING;
  }

  /** The answer to a request, as it was given to `settle`; undefined if there is none. */
  answer(request: string): unknown {
    const place = this.#places.get(request);
    if (place === undefined) return undefined;
    const [start, length] = place;
    const bytes = Buffer.alloc(length);
    readSync(this.#opened(), bytes, 0, length, start);
    return (JSON.parse(bytes.toString("utf8")) as z.infer<typeof settlement>).answer;
  }

  /** Records a call before it is sent. @returns its number */
  async reserve(model: string, { input, output }: Cost): Promise<number> {
    const call = this.#calls++;
    await this.#append({ call, model, reserved: [input, output] });
    return call;
  }

  /** Records how a call ended. */
  async settle(call: number, { input, output }: Cost, request?: string, answer?: unknown): Promise<void> {
    const entry = { call, used: [input, output], ...(request === undefined ? {} : { request, answer }) };
    const text = JSON.stringify(entry);
    const start = await this.#append(entry);
    if (request !== undefined) this.#places.set(request, [start, Buffer.byteLength(text)]);
  }

  /** Records calls that were made before there was a journal. */
  async charge(model: string, { calls, input, output }: Cost): Promise<void> {
    for (let call = 0; call < calls; call++) {
      const cost = call === 0 ? { calls: 1, input, output } : { ...NOTHING, calls: 1 };
      await this.settle(await this.reserve(model, cost), cost);
    }
  }

  close(): void {
    if (this.#handle !== null) closeSync(this.#handle);
    this.#handle = null;
  }

  #opened(): number {
    return (this.#handle ??= explainDiskErrors(this.path, () => openSync(this.path, "a+", 0o600)));
  }

  /** Appends a line, durably. @returns where it begins */
  #append(entry: object): Promise<number> {
    return new Promise((written, failed) => {
      this.#pending.push({ text: `${JSON.stringify(entry)}\n`, written, failed });
      if (!this.#isWriting) void this.#write();
    });
  }

  /** Writes what is pending, all lines with one synchronization of the disk. */
  async #write(): Promise<void> {
    this.#isWriting = true;
    while (this.#pending.length > 0) {
      const batch = this.#pending;
      this.#pending = [];
      try {
        const handle = this.#opened();
        const bytes = Buffer.from(batch.map(({ text }) => text).join(""));
        for (let done = 0; done < bytes.length;) {
          done += (await writeBytes(handle, bytes, done)).bytesWritten;
        }
        await synchronize(handle);
        for (const { text, written } of batch) {
          written(this.#bytes);
          this.#bytes += Buffer.byteLength(text);
        }
      } catch (error) {
        const told = toldOf(this.path, error);
        for (const { failed } of batch) failed(told);
      }
    }
    this.#isWriting = false;
  }

  #read(handle: number): void {
    const open = new Map<number, { model: string; reserved: readonly [number, number] }>();
    const add = (model: string, [input, output]: readonly [number, number]) => {
      const { calls, input: before, output: after } = this.spent(model);
      this.#spent.set(model, { calls: calls + 1, input: before + input, output: after + output });
    };
    let number = 0;
    let rest: Buffer = Buffer.alloc(0);
    const block = Buffer.alloc(BLOCK);
    for (let read = 0; ;) {
      const size = readSync(handle, block, 0, BLOCK, read);
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
          if (entry.request !== undefined) this.#places.set(entry.request, [this.#bytes, end]);
        }
        this.#bytes += end + 1;
        rest = rest.subarray(end + 1);
      }
    }
    for (const { model, reserved } of open.values()) add(model, reserved);
    if (rest.length > 0) explainDiskErrors(this.path, () => truncateSync(this.path, this.#bytes));
  }

  #parse(text: string, number: number): z.infer<typeof line> {
    try {
      return line.parse(JSON.parse(text));
    } catch (cause) {
      throw new UsageError(
        `${this.path}:${number}: is no line of a journal of answers; restore the file, or delete it to ask everything anew`,
        { cause },
      );
    }
  }
}

/** A failed write, as an error that says what to do. */
function toldOf(path: string, error: unknown): unknown {
  try {
    return explainDiskErrors(path, () => {
      throw error;
    });
  } catch (told) {
    return told;
  }
}
