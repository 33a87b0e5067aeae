import { UsageError } from "@astra-rl/base";

/** The parts of a SentencePiece model (Kudo and Richardson 2018, arXiv 1808.06226) that a tokenizer needs. */
export interface SentencePieceModel {
  readonly pieces: readonly Piece[];
  /** 1: unigram. */
  readonly modelType: number;
  /** The character map of its normalization; empty if there is none. */
  readonly precompiledCharsmap: Uint8Array;
}

export interface Piece {
  readonly text: string;
  readonly score: number;
  readonly type: number;
}

/** Piece types, with their numbers in sentencepiece_model.proto. */
export const CONTROL = 3;
export const USER_DEFINED = 4;

const NORMAL = 1;
const UNIGRAM = 1;

/** Parses `sentencepiece.bpe.model`, a protocol buffer. @throws UsageError that starts with `place` */
export function readSentencePiece(bytes: Uint8Array, place: string): SentencePieceModel {
  const fail = () =>
    new UsageError(
      "not-sentencepiece",
      `${place}: is not a SentencePiece model, or it is damaged: download it again`,
    );
  const pieces: Piece[] = [];
  let modelType = UNIGRAM;
  let precompiledCharsmap: Uint8Array = new Uint8Array();
  for (const [field, value] of fieldsOf(bytes, fail)) {
    if (!(value instanceof Uint8Array)) continue;
    if (field === 1) pieces.push(readPiece(value, fail));
    if (field === 2) {
      for (const [inner, given] of fieldsOf(value, fail)) if (inner === 3) modelType = numberOf(given, fail);
    }
    if (field === 3) {
      for (const [inner, given] of fieldsOf(value, fail)) {
        if (inner === 2 && given instanceof Uint8Array) precompiledCharsmap = given;
      }
    }
  }
  if (pieces.length === 0) throw fail();
  return { pieces, modelType, precompiledCharsmap };
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function readPiece(bytes: Uint8Array, fail: () => Error): Piece {
  let [text, score, type] = ["", 0, NORMAL];
  for (const [field, value] of fieldsOf(bytes, fail)) {
    if (field === 1 && value instanceof Uint8Array) {
      try {
        text = decoder.decode(value);
      } catch {
        throw fail();
      }
    }
    if (field === 2) score = numberOf(value, fail);
    if (field === 3) type = numberOf(value, fail);
  }
  return { text, score, type };
}

function numberOf(value: number | Uint8Array, fail: () => Error): number {
  if (typeof value !== "number") throw fail();
  return value;
}

/** Number and value of each field of a message: varints and floats as numbers, length-delimited fields as bytes. */
function* fieldsOf(bytes: Uint8Array, fail: () => Error): Generator<[number, number | Uint8Array]> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  const take = (length: number) => {
    if (!(at + length <= bytes.length)) throw fail();
    at += length;
    return at - length;
  };
  const varint = () => {
    let value = 0;
    for (let shift = 1; ; shift *= 128) {
      const byte = view.getUint8(take(1));
      value += (byte & 127) * shift;
      if (byte < 128) return value;
      if (shift > 2 ** 56) throw fail();
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    const field = Math.floor(tag / 8);
    switch (tag % 8) {
      case 0:
        yield [field, varint()];
        break;
      case 1:
        yield [field, view.getFloat64(take(8), true)];
        break;
      case 2: {
        const length = varint();
        const start = take(length);
        yield [field, bytes.subarray(start, start + length)];
        break;
      }
      case 5:
        yield [field, view.getFloat32(take(4), true)];
        break;
      default:
        throw fail();
    }
  }
}
