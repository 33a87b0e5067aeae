import { readFileSync } from "node:fs";
import * as torch from "../src/index.js";
import { Generator, Tensor, tensor, type Device, type DType } from "../src/index.js";

export interface EncodedTensor {
  tensor: (number | string)[];
  shape: number[];
  dtype: DType;
}

export interface GoldenCase {
  name: string;
  arguments: unknown[];
  options: Record<string, unknown>;
  expected: unknown;
}

export function goldenCases(): GoldenCase[] {
  const text = readFileSync(new URL("golden/operators.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { cases: GoldenCase[] }).cases;
}

export const camelCase = (name: string): string =>
  name.replace(/_+([a-z0-9])/gu, (_, letter: string) => letter.toUpperCase());

export function isEncodedTensor(value: unknown): value is EncodedTensor {
  return typeof value === "object" && value !== null && "tensor" in value;
}

/** "nan", "inf" and "-inf" represent values that JSON cannot. */
export function numberOf(value: number | string): number {
  if (typeof value === "number") return value;
  return value === "nan" ? NaN : value === "inf" ? Infinity : -Infinity;
}

export function decode(value: unknown, device: Device = "cpu"): unknown {
  if (isEncodedTensor(value)) {
    const numbers = Float64Array.from(value.tensor, numberOf);
    return tensor(numbers, { shape: value.shape, dtype: value.dtype, device });
  }
  if (Array.isArray(value)) return value.map((each) => decode(each, device));
  if (typeof value === "object" && value !== null && "generator" in value) {
    return new Generator(value.generator as number);
  }
  return value;
}

/** Calls a wrapper by PyTorch's name: a method if the first argument is a tensor that has it. */
export function invoke(name: string, values: unknown[], options?: Record<string, unknown>): unknown {
  const key = camelCase(name);
  const trailing = options === undefined ? [] : [options];
  const first = values[0];
  const method = first instanceof Tensor ? (first as unknown as Record<string, unknown>)[key] : undefined;
  if (typeof method === "function") return Reflect.apply(method, first, [...values.slice(1), ...trailing]);
  const plain = (torch as Record<string, unknown>)[key];
  if (typeof plain !== "function") throw new Error(`there is no wrapper for ${name}`);
  return Reflect.apply(plain, undefined, [...values, ...trailing]);
}

/** Relative and absolute difference allowed for a dtype; 0 for all others. */
export type Tolerance = Partial<Record<DType, number>>;

/** How a result differs from PyTorch's; null if it does not. */
export function disagreement(
  actual: unknown,
  expected: unknown,
  tolerance: Tolerance,
  where: string,
): string | null {
  if (Array.isArray(expected)) {
    if (!Array.isArray(actual) || actual.length !== expected.length)
      return `${where}: no list of ${expected.length}`;
    const each = expected.map((item, at) => disagreement(actual[at], item, tolerance, `${where}[${at}]`));
    return each.find((found) => found !== null) ?? null;
  }
  if (!isEncodedTensor(expected)) {
    return Object.is(actual, expected)
      ? null
      : `${where}: ${String(actual)}, PyTorch gives ${String(expected)}`;
  }
  if (!(actual instanceof Tensor)) return `${where}: no tensor but ${String(actual)}`;
  const found = `${actual.dtype} [${actual.shape.join(", ")}]`;
  const wanted = `${expected.dtype} [${expected.shape.join(", ")}]`;
  if (found !== wanted) return `${where}: ${found}, PyTorch gives ${wanted}`;
  const numbers = Array.from(actual.toTypedArray(), Number);
  const allowed = tolerance[expected.dtype] ?? 0;
  for (const [index, encoded] of expected.tensor.entries()) {
    const value = numberOf(encoded);
    const got = numbers[index]!;
    if (Object.is(got, value) || Math.abs(got - value) <= allowed * Math.max(1, Math.abs(value))) continue;
    return `${where}: element ${index} is ${got}, PyTorch gives ${value}`;
  }
  return null;
}

/** The result of a case's call, with tensors on a device. In a `scope`; generators among the arguments are disposed. */
export function resultOf(
  { name, arguments: given, options }: GoldenCase,
  device: Device = "cpu",
): {
  result: unknown;
  values: unknown[];
} {
  const values = given.map((value) => decode(value, device));
  const named = Object.fromEntries(
    Object.entries(options).map(([key, value]) => [camelCase(key), decode(value, device)]),
  );
  try {
    return { result: invoke(name, values, Object.keys(named).length > 0 ? named : undefined), values };
  } finally {
    for (const value of [...values, ...Object.values(named)]) if (value instanceof Generator) value.dispose();
  }
}
