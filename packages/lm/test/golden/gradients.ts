/** Values computed by transformers in make_gradients.py. */
import { readFileSync } from "node:fs";
import type { Tensor } from "@astra-rl/torch";
import type { ScoredRow } from "../../src/index.js";

/** Norm of a gradient, and its products with cos(i) and cos(2 i). */
export type Summary = [norm: number, cosine: number, twice: number];

interface Expected {
  gradients: Record<string, Summary>;
  lora: {
    targetModules: string[];
    logprobs: number[][];
    gradients: Record<string, { a: Summary; b: Summary }>;
  };
}

export const goldenGradients = JSON.parse(
  readFileSync(new URL("gradients-expected.json", import.meta.url), "utf8"),
) as {
  rows: ScoredRow[];
  rank: number;
  scale: number;
  models: Record<string, Expected>;
};

export function summary(gradient: Tensor): Summary {
  const values = Array.from(gradient.toTypedArray(), Number);
  const along = (step: number) => values.reduce((sum, value, at) => sum + value * Math.cos(step * at), 0);
  return [Math.hypot(...values), along(1), along(2)];
}

/** The largest difference, relative to the gradient's norm. */
export function difference(found: Summary, expected: Summary): number {
  return Math.max(...found.map((value, at) => Math.abs(value - expected[at]!))) / expected[0];
}
