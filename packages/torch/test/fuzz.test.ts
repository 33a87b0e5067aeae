import { closeSync, openSync, writeSync } from "node:fs";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { rounds } from "../../../scripts/rounds.js";
import { AstraError, describeValue } from "@astra-rl/base";
import { addon } from "../src/native.js";
import { operatorNames } from "../src/operator-names.generated.js";
import {
  arange,
  empty,
  full,
  Generator,
  openTensorFile,
  scope,
  setAllocationLimit,
  Tensor,
  tensor,
  zeros,
} from "../src/index.js";
import { camelCase, decode, goldenCases, invoke } from "./golden-cases.js";
import { expectNoLeaks } from "./live-tensors.js";

// With any arguments, a call returns or throws an AstraError. A crash ends this process and fails the file; the last
// line of TORCH_FUZZ_LOG=file then is the call that caused it, TORCH_FUZZ_SEED repeats the run.
const MUTATIONS = rounds(3000, 10_000);
const seed = Number(process.env["TORCH_FUZZ_SEED"] ?? 20);
const logPath = process.env["TORCH_FUZZ_LOG"];
const log = logPath === undefined ? null : openSync(logPath, "w");

expectNoLeaks();
beforeAll(() => {
  // Sizes that fit in memory cause no crash, but are slow.
  setAllocationLimit(1 << 24);
});
afterAll(() => {
  setAllocationLimit(null);
  if (log !== null) closeSync(log);
});

const cases = goldenCases();

/** Values of wrong kinds. Created for every call, since calls write into tensors. */
const strangers: (() => unknown)[] = [
  ...[undefined, null, NaN, Infinity, -Infinity, -1, 0, 1, 2, 3, 7, 0.5, -0, 1e308, 5e-324].map(
    (v) => () => v,
  ),
  ...[2 ** 31, -(2 ** 31), 2 ** 32, 2 ** 40, 2 ** 52, 2 ** 53 - 1, -(2 ** 53 - 1), 2 ** 60].map(
    (v) => () => v,
  ),
  ...[5n, -1n, 2n ** 63n - 1n, -(2n ** 63n), 2n ** 63n, 2n ** 200n].map((v) => () => v),
  ...["", "x", "mean", "float32", "int64", "cuda", "cpu:7", "ij,jk", "...", "\u0000", "x".repeat(5000)].map(
    (v) => () => v,
  ),
  ...[true, false, Symbol("s"), () => 1, {}, { length: 3 }, new Map(), new Float32Array(3), new Date(0)].map(
    (v) => () => v,
  ),
  ...[[], [0], [-1], [NaN], [[1]], [1.5], [null], ["a"], [2 ** 40, 2 ** 40], [2 ** 62], [-(2 ** 53)]].map(
    (v) => () => v,
  ),
  () => Array.from({ length: 70 }, () => 1),
  () => [0, 1, 2, 3, 4, 5, 6, 7],
  () => [0, 0],
  () => zeros([0]),
  () => zeros([]),
  () => zeros([0, 3]),
  () => zeros([2, 0, 3]),
  () => zeros([1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
  () => tensor([NaN, Infinity, -Infinity]),
  () =>
    tensor(
      [
        [1, 2, 3],
        [4, 5, 6],
      ],
      { dtype: "float64" },
    ),
  () =>
    tensor(
      [
        [1, 2, 3],
        [4, 5, 6],
      ],
      { dtype: "bfloat16" },
    ),
  () =>
    tensor(
      [
        [1, 2, 3],
        [4, 5, 6],
      ],
      { dtype: "float16" },
    ),
  () =>
    tensor(
      [
        [1, 2, 3],
        [4, 5, 6],
      ],
      { dtype: "int32" },
    ),
  () =>
    tensor(
      [
        [1, 2, 3],
        [4, 5, 6],
      ],
      { dtype: "uint8" },
    ),
  () =>
    tensor([
      [1, 2, 3],
      [4, 5, 6],
    ]).t(),
  () => tensor([1, 2, 3]).requiresGrad_(),
  () =>
    tensor(
      [
        [1, 2, 3],
        [4, 5, 6],
      ],
      { requiresGrad: true },
    ).mul(2),
  () => tensor([true, false, true]),
  () => arange(6).reshape([2, 3]),
  () => tensor([-1, 7, 2], { dtype: "int64" }),
  () => tensor(BigInt64Array.of(2n ** 63n - 1n, -(2n ** 63n), 2n ** 40n)),
  () => tensor([[2 ** 53 - 1, -(2 ** 53 - 1)]], { dtype: "int64" }),
  () => zeros([1]).expand([2 ** 20]),
  () => zeros([1, 1], { dtype: "int64" }).expand([1000, 1000]),
  () => full([3], 2 ** 40, { dtype: "int64" }),
  () => {
    const gone = zeros([2, 3]);
    gone.dispose();
    return gone;
  },
  () => [zeros([2]), zeros([3, 3])],
  () => [null, zeros([2], { dtype: "int64" })],
  () => Array.from({ length: 40 }, () => zeros([1])),
  () => new Generator(1),
  () => {
    const gone = new Generator(1);
    gone.dispose();
    return gone;
  },
];

const generatorsOf = (values: readonly unknown[]) => values.filter((value) => value instanceof Generator);

type Mutation =
  | { kind: "replace"; at: number; by: number }
  | { kind: "element"; at: number; inner: number; by: number }
  | { kind: "swap"; at: number; with: number }
  | { kind: "remove"; at: number }
  | { kind: "insert"; at: number; by: number }
  | { kind: "option"; name: number; by: number };

const stranger = fc.nat(strangers.length - 1);
const place = fc.nat(7);
const mutation: fc.Arbitrary<Mutation> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant("replace" as const), at: place, by: stranger }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("element" as const), at: place, inner: place, by: stranger }),
  },
  fc.record({ kind: fc.constant("swap" as const), at: place, with: place }),
  fc.record({ kind: fc.constant("remove" as const), at: place }),
  fc.record({ kind: fc.constant("insert" as const), at: place, by: stranger }),
  fc.record({ kind: fc.constant("option" as const), name: fc.nat(9), by: stranger }),
);
const optionNames =
  "dtype generator alpha value roundingMode approximate dim keepdim reduction includeSelf".split(" ");

function apply(values: unknown[], options: Record<string, unknown>, change: Mutation): void {
  // The tensor on which the method is called is mostly kept: without it there is no method.
  const count = Math.max(1, values.length);
  switch (change.kind) {
    case "replace":
      values[change.at % count] = strangers[change.by]?.();
      break;
    case "element": {
      const list: unknown = values[change.at % count];
      if (!Array.isArray(list) || list.length === 0) break;
      const copy = [...list];
      copy[change.inner % list.length] = strangers[change.by]?.();
      values[change.at % count] = copy;
      break;
    }
    case "swap": {
      const [a, b] = [change.at % count, change.with % count];
      [values[a], values[b]] = [values[b], values[a]];
      break;
    }
    case "remove":
      values.splice(change.at % count, 1);
      break;
    case "insert":
      values.splice(change.at % (count + 1), 0, strangers[change.by]?.());
      break;
    case "option":
      options[optionNames[change.name] as string] = strangers[change.by]?.();
  }
}

const show = (value: unknown): string =>
  Array.isArray(value)
    ? `[${value.map(show).join(", ")}]`
    : value instanceof Tensor
      ? value.toString()
      : describeValue(value);

function expectRefusal(error: unknown, what: string): void {
  if (error instanceof AstraError && error.message !== "" && !error.message.startsWith("internal:")) return;
  throw new Error(`${what}: threw something that is no AstraError`, { cause: error });
}

describe("hostile arguments", () => {
  it(`${MUTATIONS} random mutations of operator calls cause no crash`, () => {
    let calls = 0;
    let refused = 0;
    const onTensors = new Set(Object.getOwnPropertyNames(Object.getPrototypeOf(Tensor.prototype)));
    fc.assert(
      fc.property(
        fc.nat(cases.length - 1),
        fc.array(mutation, { minLength: 1, maxLength: 3 }),
        (which, changes) => {
          const item = cases[which] as (typeof cases)[number];
          scope(() => {
            const values = item.arguments.map((value) => decode(value));
            const options: Record<string, unknown> = Object.fromEntries(
              Object.entries(item.options).map(([key, value]) => [camelCase(key), decode(value)]),
            );
            const seen = [...values, ...Object.values(options)];
            for (const change of changes) apply(values, options, change);
            // Methods need a tensor to be called on.
            if (onTensors.has(camelCase(item.name)) && !(values[0] instanceof Tensor))
              values.unshift(zeros([2, 3]));
            if (log !== null)
              writeSync(log, `${item.name} ${show(values)} ${show(Object.entries(options))}\n`);
            calls += 1;
            try {
              invoke(item.name, values, Object.keys(options).length > 0 ? options : undefined);
            } catch (error) {
              refused += 1;
              expectRefusal(error, `${item.name} ${show(values)}`);
            }
            for (const generator of generatorsOf([...seen, ...values, ...Object.values(options)]))
              generator.dispose();
          });
        },
      ),
      { numRuns: MUTATIONS, seed, endOnFailure: true },
    );
    expect(calls).toBe(MUTATIONS);
    // Both outcomes were exercised: most mutations are refused, many are harmless.
    expect(refused).toBeGreaterThan(MUTATIONS / 4);
    expect(refused).toBeLessThan(MUTATIONS);
  }, 120_000);

  it("2,000 raw calls of the addon with arbitrary values cause no crash", () => {
    const native = addon() as unknown as Record<string, (...values: unknown[]) => unknown>;
    // Functions that change the process itself are excluded.
    const names = Object.keys(native).filter(
      (name) =>
        ![
          "setErrorClass",
          "registerOperators",
          "setThreads",
          "setAllocationLimit",
          "manualSeed",
          "guardAllocations",
          "failAllocation",
        ].includes(name),
    );
    const value = fc.oneof(
      stranger.map((index) => index),
      fc.constant(-1),
    );
    let calls = 0;
    fc.assert(
      fc.property(
        fc.constantFrom(...names),
        fc.array(value, { maxLength: 12 }),
        fc.nat(operatorNames.length),
        (name, picks, operator) => {
          scope(() => {
            const values = picks.map((pick) => {
              const made = pick < 0 ? tensor([1, 2]) : strangers[pick]?.();
              return made instanceof Tensor ? made.handle : made;
            });
            const given = name === "call" ? [operator, false, ...values] : values;
            calls += 1;
            try {
              // A returned handle has no object that would free it.
              for (const result of [native[name]?.(...given)].flat()) {
                if (typeof result === "number") addon().release(result);
              }
            } catch (error) {
              expectRefusal(error, name);
            }
            for (const generator of generatorsOf(values)) generator.dispose();
          });
        },
      ),
      { numRuns: 2000, seed, endOnFailure: true },
    );
    expect(calls).toBe(2000);
  }, 60_000);

  it("refuses tensors larger than memory from every operator", () => {
    scope(() => {
      expect(() => zeros([2 ** 40])).toThrow(/^aten::zeros: needs \d+ bytes at once/u);
      expect(() => zeros([2 ** 31, 2 ** 31, 2 ** 31])).toThrow(/^aten::zeros: /u);
      expect(() => empty([2 ** 53 - 1])).toThrow(/^aten::empty/u);
      expect(() => zeros([1]).expand([2 ** 40, 2 ** 40])).toThrow(/^aten::expand: /u);
      expect(() =>
        zeros([1])
          .expand([2 ** 40])
          .contiguous(),
      ).toThrow(/^aten::contiguous: needs/u);
      expect(() => zeros([1]).repeat([2 ** 40])).toThrow(/^aten::repeat: /u);
    });
  });

  it("refuses files that cannot be read", () => {
    expect(() => openTensorFile("/")).toThrow(/not a regular file/u);
    expect(() => openTensorFile("/nowhere/at/all")).toThrow(/cannot be opened: no such file/u);
    expect(() => openTensorFile("a\u0000b")).toThrow(/zero byte/u);
    // @ts-expect-error a number is no path
    expect(() => openTensorFile(7)).toThrow(/path must be a string/u);
  });
});
