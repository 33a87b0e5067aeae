import { expect, test } from "vitest";
import { fastestTypes } from "../../src/models/index.js";

const LARGE = 2 ** 28;
const types = (...given: Parameters<typeof fastestTypes>) => {
  const { rollouts, updates, reason } = fastestTypes(...given);
  expect(reason.length).toBeGreaterThan(20);
  return [rollouts, updates];
};

test.each(["amx", "avx512_bf16"] as const)("%s: bfloat16 in rollouts and updates", (isa) => {
  expect(types({ isa, bf16: true }, "cpu", LARGE)).toEqual(["bfloat16", "bfloat16"]);
});

test("AVX-512 without products of bfloat16: in rollouts only", () => {
  expect(types({ isa: "avx512", bf16: false }, "cpu", LARGE)).toEqual(["bfloat16", "float32"]);
});

test.each(["avx2", "baseline"] as const)("%s: float32", (isa) => {
  expect(types({ isa, bf16: false }, "cpu", LARGE)).toEqual(["float32", "float32"]);
});

test("an unmeasured kind of processor with bfloat16: float32", () => {
  expect(types({ isa: "baseline", bf16: true }, "cpu", LARGE)).toEqual(["float32", "float32"]);
});

test("GPT-2 with 124 million parameters on a GPU: float32, since bfloat16 saved no time there", () => {
  expect(types({ isa: "avx2", bf16: false }, "cuda", 124e6 * 4)).toEqual(["float32", "float32"]);
});

test("small models: float32, on every device; large ones on a device: bfloat16", () => {
  expect(types({ isa: "amx", bf16: true }, "cpu", 2 ** 20)).toEqual(["float32", "float32"]);
  expect(types({ isa: "avx2", bf16: false }, "cuda", 2 ** 20)).toEqual(["float32", "float32"]);
  expect(types({ isa: "avx2", bf16: false }, "cuda", 2 ** 30)).toEqual(["bfloat16", "bfloat16"]);
});
