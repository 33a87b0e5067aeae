import { closeSync, openSync, writeSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { explainDiskErrors, makeFolder } from "@astra-rl/base";

/**
 * A TensorBoard event file with scalars by step. A file is a sequence of records,
 *
 *     length (u64) · masked CRC-32C of the length (u32) · data · masked CRC-32C of the data (u32),
 *
 * little-endian (tensorflow/core/lib/io/record_writer.h). The data is an `Event` protocol buffer
 * (tensorflow/core/util/event.proto); only the fields below are written.
 *
 * A resumed run opens a new file. Its first event makes TensorBoard discard the steps that are recomputed.
 */
export class EventFile {
  readonly path: string;
  #handle: number | null;
  readonly #now: () => number;

  /**
   * @param folder is created if it does not exist
   * @param nextStep the first step that will be written
   * @param now milliseconds since 1970
   * @throws UsageError if the file cannot be written
   */
  constructor(folder: string, nextStep: number, now: () => number = Date.now) {
    this.#now = now;
    const seconds = String(Math.floor(now() / 1000)).padStart(10, "0");
    this.path = join(folder, `events.out.tfevents.${seconds}.${hostname()}.${process.pid}.${nextStep}`);
    makeFolder(folder);
    this.#handle = explainDiskErrors(folder, () => openSync(this.path, "a"));
    this.#write(event(this.#now(), 0, text(3, "brain.Event:2")));
    if (nextStep > 1) this.#write(event(this.#now(), nextStep, message(7, variable(1, SESSION_START))));
  }

  add(step: number, values: Readonly<Record<string, number>>): void {
    const summary = Object.entries(values).map(([tag, value]) =>
      message(1, Buffer.concat([text(1, tag), fixed32(2, value)])),
    );
    this.#write(event(this.#now(), step, message(5, Buffer.concat(summary))));
  }

  /** Adds the run's hyperparameters, shown in the HPARAMS tab (tensorboard/plugins/hparams/plugin_data.proto). */
  addHyperparameters(parameters: readonly (readonly [key: string, value: unknown])[]): void {
    const entries = parameters.map(([name, value]) =>
      message(1, Buffer.concat([text(1, name), message(2, protobufValue(value))])),
    );
    const content = message(3, Buffer.concat(entries));
    const metadata = message(9, message(1, Buffer.concat([text(1, "hparams"), message(2, content)])));
    const value = message(1, Buffer.concat([text(1, "_hparams_/session_start_info"), metadata]));
    this.#write(event(this.#now(), 0, message(5, value)));
  }

  close(): void {
    if (this.#handle !== null) closeSync(this.#handle);
    this.#handle = null;
  }

  #write(data: Buffer): void {
    const record = frame(data);
    explainDiskErrors(this.path, () => {
      for (let done = 0; done < record.length;) done += writeSync(this.#handle!, record, done);
    });
  }
}

/** SessionLog.SessionStatus.START. */
const SESSION_START = 1;

/** @param fields the encoded fields other than time and step */
function event(milliseconds: number, step: number, fields: Buffer): Buffer {
  const time = Buffer.alloc(9);
  time[0] = key(1, 1);
  time.writeDoubleLE(milliseconds / 1000, 1);
  // Protocol buffers omit fields whose value is 0.
  return Buffer.concat([time, step === 0 ? Buffer.alloc(0) : variable(2, step), fields]);
}

/** Field number and wire type: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes. */
const key = (field: number, encoding: 0 | 1 | 2 | 5) => (field << 3) | encoding;

function variableLength(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  // Steps go up to 2^53; bit shifts would truncate to 32 bits.
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80);
  return [...bytes, rest];
}

const variable = (field: number, value: number) => Buffer.from([key(field, 0), ...variableLength(value)]);

function message(field: number, content: Buffer): Buffer {
  return Buffer.concat([Buffer.from([key(field, 2), ...variableLength(content.length)]), content]);
}

const text = (field: number, value: string) => message(field, Buffer.from(value));

/** A google.protobuf.Value: a number, string or boolean; anything else is written as JSON. */
function protobufValue(value: unknown): Buffer {
  if (typeof value === "number") {
    const bytes = Buffer.alloc(9);
    bytes[0] = key(2, 1);
    bytes.writeDoubleLE(value, 1);
    return bytes;
  }
  if (typeof value === "boolean") return variable(4, Number(value));
  return text(3, typeof value === "string" ? value : JSON.stringify(value));
}

function fixed32(field: number, value: number): Buffer {
  const bytes = Buffer.alloc(5);
  bytes[0] = key(field, 5);
  bytes.writeFloatLE(value, 1);
  return bytes;
}

/** @returns the framed record */
export function frame(data: Buffer): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(data.length));
  return Buffer.concat([length, checksum(length), data, checksum(data)]);
}

function checksum(bytes: Buffer): Buffer {
  const crc = crc32c(bytes);
  // TFRecord masks checksums, because the CRC of data that contains CRCs is weak.
  const masked = (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32LE(masked);
  return buffer;
}

/** CRC remainder of each byte for the Castagnoli polynomial, bits reversed. */
const REMAINDERS = Uint32Array.from({ length: 256 }, (_, byte) => {
  let remainder = byte;
  for (let bit = 0; bit < 8; bit++) remainder = (remainder >>> 1) ^ (remainder & 1 ? 0x82f63b78 : 0);
  return remainder >>> 0;
});

/** CRC-32C (RFC 3720, appendix B.4). */
export function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ REMAINDERS[(crc ^ byte) & 0xff]!;
  return (crc ^ 0xffffffff) >>> 0;
}
