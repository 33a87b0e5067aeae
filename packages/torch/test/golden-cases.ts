import { readFileSync } from "node:fs";

import * as torch from "../src/index.js";
import { Generator, Tensor, tensor, type DType } from "../src/index.js";

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

/** "nan", "inf" and "-inf" stand for what JSON cannot hold. */
export function numberOf(value: number | string): number {
  if (typeof value === "number") return value;
  return value === "nan" ? NaN : value === "inf" ? Infinity : -Infinity;
}

export function decode(value: unknown): unknown {
  if (isEncodedTensor(value)) {
    const numbers = Float64Array.from(value.tensor, numberOf);
    return tensor(numbers, { shape: value.shape, dtype: value.dtype });
  }
  if (Array.isArray(value)) return value.map(decode);
  if (typeof value === "object" && value !== null && "generator" in value) {
    return new Generator(value.generator as number);
  }
  return value;
}

/** Calls a wrapper by PyTorch's name: a method where the first argument is a tensor that has one. */
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
