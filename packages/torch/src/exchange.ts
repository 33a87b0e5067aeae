/** Numbers that are exchanged with the addon through shared memory, which costs a tenth of passing values. */
import { dtypeOfCode, isDTypeCode, type Device, type DType } from "./dtype.js";
import { addon, exchanged } from "./native.js";
import { isGradEnabled } from "./scope.js";

/** Tags of arguments, as words.cpp reads them. */
const [UNDEFINED, NULL, FALSE, TRUE, NUMBER, LIST] = [0, 1, 2, 3, 4, 5] as const;
/** Words that one argument other than a list takes at most. */
const MOST_WORDS = 2;

/** Calls that wrote arguments: a getter of an argument may call operators, too. */
let calls = 0;

/**
 * Calls an operator on handles, numbers, booleans, and lists of them; undefined stands for the schema's default.
 *
 * @param operator index in `operatorNames`
 * @returns as the addon's `call`
 */
export function call(operator: number, ...values: unknown[]): unknown {
  const native = addon();
  const { words } = exchanged;
  const isRecording = isGradEnabled();
  const own = ++calls;
  let at = 0;
  for (let index = 0; index < values.length; index++) {
    const value = values[index];
    if (at + MOST_WORDS > words.length) return native.call(operator, isRecording, ...values);
    if (typeof value === "number") {
      words[at++] = NUMBER;
      words[at++] = value;
    } else if (value === undefined) words[at++] = UNDEFINED;
    else if (value === null) words[at++] = NULL;
    else if (typeof value === "boolean") words[at++] = value ? TRUE : FALSE;
    else if (Array.isArray(value) && at + MOST_WORDS + value.length <= words.length) {
      words[at++] = LIST;
      words[at++] = value.length;
      for (let item = 0; item < value.length; item++) {
        const number: unknown = value[item];
        if (typeof number !== "number") return native.call(operator, isRecording, ...values);
        words[at++] = number;
      }
    } else return native.call(operator, isRecording, ...values);
  }
  if (own !== calls) return native.call(operator, isRecording, ...values);
  return native.callOnWords(operator, isRecording, values.length);
}

/** The arguments that were last written for `callOnWords`, those of lists one by one. */
export function writtenValues(count: number): unknown[] {
  const { words } = exchanged;
  const values: unknown[] = [];
  for (let at = 0, read = 0; read < count; read++) {
    const tag = words[at++]!;
    const length = tag === NUMBER ? 1 : tag === LIST ? words[at++]! : 0;
    if (tag < NUMBER) values.push([undefined, null, false, true][tag]);
    else values.push(...words.subarray(at, at + length));
    at += length;
  }
  return values;
}

/** What does not change during the life of a tensor. */
export interface Facts {
  readonly dtype: DType;
  readonly device: Device;
  readonly shape: readonly number[];
  readonly code: number;
  readonly place: number;
}

/** Words of the facts of one tensor: see engine.h. */
const FACT_WORDS = 12;
/** Facts repeat from token to token: they are made, and frozen, once for as long as no others take their place. */
const met: (Facts | undefined)[] = Array.from({ length: 1024 });
/** By code; the CPU's is 0. */
const devices = new Map<number, Device>([[0, "cpu"]]);

/** Facts of tensor number `index` that the last call returned; null if that was another one. */
export function factsOf(handle: number, index: number): Facts | null {
  const { facts } = exchanged;
  const from = index * FACT_WORDS;
  if (facts[from] !== handle) return null;
  const [code, place, count] = [facts[from + 1]!, facts[from + 2]!, facts[from + 3]!];
  const sizes = from + 4;
  let key = Math.imul(code, 31) + place;
  for (let at = sizes; at < sizes + count; at++) key = (Math.imul(key, 31) + facts[at]!) | 0;
  const slot = (key ^ (key >>> 10)) & (met.length - 1);
  const known = met[slot];
  if (known !== undefined && isSame(known, code, place, count, sizes)) return known;
  const device = devices.get(place);
  if (device === undefined || !isDTypeCode(code)) return null;
  const shape = Object.freeze(Array.from(facts.subarray(sizes, sizes + count)));
  return (met[slot] = { dtype: dtypeOfCode(code), device, shape, code, place });
}

function isSame(known: Facts, code: number, place: number, count: number, sizes: number): boolean {
  const { shape } = known;
  if (known.code !== code || known.place !== place || shape.length !== count) return false;
  for (let at = 0; at < count; at++) if (shape[at] !== exchanged.facts[sizes + at]) return false;
  return true;
}

/** The same for any tensor, from a call of its own. */
export function describe(handle: number): Facts {
  const [code, place, device, ...sizes] = addon().describe(handle);
  devices.set(place, device);
  return { dtype: dtypeOfCode(code), device, shape: Object.freeze(sizes), code, place };
}
