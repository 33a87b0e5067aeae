import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { rounds } from "../../../scripts/rounds.js";
import { TorchError } from "@astra-rl/base";
import {
  autocastLinear,
  engineInformation,
  linear,
  manualSeed,
  maxMemoryAllocated,
  memoryAllocated,
  noGrad,
  ones,
  randn,
  resetPeakMemoryStats,
  scope,
  tensor,
  type DType,
  zeros,
  type Tensor,
} from "../src/index.js";
import { checkGradient } from "../src/testing.js";
import { expectClose } from "./expect-close.js";
import { expectNoLeaks } from "./live-tensors.js";
import { mayUseTiles } from "./tiles.js";

expectNoLeaks();

const bfloat16 = (...shape: number[]) => scope(() => randn(shape).to("bfloat16"));
const wide = (value: Tensor) => value.to("float64");
/** The operands: rounded to bfloat16, exact afterwards. */
const rounded = (value: Tensor) => wide(value.to("bfloat16"));
const numbers = (value: Tensor) => value.contiguous().toTypedArray() as Float32Array;
const in16Bits = { dtype: "bfloat16" } as const;

/** Half the distance of adjacent bfloat16 numbers around 1, plus the effect of another order of sums. */
const ROUNDING = 2 ** -8 + 1e-4;
/** Rounding error of float32 sums of a thousand numbers of size 1, relative to the largest. */
const SUMS = 2e-5;

/** A matrix in one of several memory layouts: contiguous, transposed, a part of a larger one, every other column. */
const layouts = ["plain", "turned", "part", "apart"] as const;
type Layout = (typeof layouts)[number];
function laidOut(layout: Layout, rows: number, columns: number, dtype: DType): Tensor {
  const make = (...shape: number[]) => randn(shape).to(dtype);
  if (layout === "plain") return make(rows, columns);
  if (layout === "turned") return make(columns, rows).t();
  if (layout === "part")
    return make(rows + 2, columns + 3)
      .narrow(0, 1, rows)
      .narrow(1, 2, columns);
  return make(rows, columns, 2).select(2, 1);
}

interface Case {
  rows: number;
  outputs: number;
  inner: number;
  input: { dtype: DType; layout: Layout };
  weight: { dtype: DType; layout: Layout };
  withBias: boolean;
  withResidual: boolean;
  transposed: boolean;
  resultDtype: "bfloat16" | "float32";
}

const operand = fc.record({
  dtype: fc.constantFrom<DType>("bfloat16", "float32"),
  layout: fc.constantFrom(...layouts),
});
const size = fc.oneof(
  fc.integer({ min: 1, max: 70 }),
  fc.constantFrom(32, 64, 96, 256),
  fc.integer({ min: 1, max: 700 }),
);
const anyCase: fc.Arbitrary<Case> = fc.record({
  rows: fc.oneof(fc.integer({ min: 1, max: 70 }), fc.integer({ min: 60, max: 300 })),
  outputs: size,
  inner: size,
  input: operand,
  weight: operand,
  withBias: fc.boolean(),
  withResidual: fc.boolean(),
  transposed: fc.boolean(),
  resultDtype: fc.constantFrom("bfloat16", "float32"),
});

function check(given: Case): void {
  const { rows, outputs, inner, input, weight, withBias, withResidual, transposed, resultDtype } = given;
  scope(() => {
    const x = laidOut(input.layout, rows, inner, input.dtype);
    const [height, width] = transposed ? [inner, outputs] : [outputs, inner];
    const stored = laidOut(weight.layout, height, width, weight.dtype);
    const b = withBias ? randn([outputs]).to(weight.dtype) : null;
    const residual = withResidual ? laidOut(input.layout, rows, outputs, resultDtype) : null;
    const got = autocastLinear(x, stored, b, { dtype: "bfloat16", resultDtype, transposed, residual });
    const w = transposed ? stored.t() : stored;
    const product = linear(rounded(x), rounded(w), b === null ? null : wide(b));
    const exact = residual === null ? product : product.add(wide(residual));
    expect(got.shape).toEqual([rows, outputs]);
    expect(got.dtype).toBe(resultDtype);
    if (resultDtype === "float32") return expectClose(numbers(got), numbers(exact), SUMS * Math.sqrt(inner));
    // A 16-bit residual is added to the rounded product, which may be larger than the sum.
    const scale = product.abs().maximum(exact.abs()).clampMin(1);
    expectClose(numbers(wide(got).div(scale)), numbers(exact.div(scale)), 2 * ROUNDING);
  });
}

describe("autocastLinear", () => {
  const asked = process.env["ASTRA_ISA"] ?? "";
  it.runIf(asked !== "")("computes within the instruction set that was asked for", () => {
    expect(engineInformation().isa).toBe(asked);
  });

  it("equals the product computed by hand", () => {
    scope(() => {
      const input = tensor([[1, 2]], in16Bits);
      const weight = tensor(
        [
          [3, 4],
          [5, -6],
        ],
        { dtype: "float32" },
      );
      const bias = tensor([0.5, 1]);
      expect(autocastLinear(input, weight, bias, in16Bits).toArray()).toEqual([[11.5, -6]]);
      expect(autocastLinear(input, weight, null, in16Bits).toArray()).toEqual([[11, -7]]);
      // 1 + 2⁻⁹ is not a bfloat16 number: it is rounded before the product.
      const fine = tensor([[1 + 2 ** -9, 0]]);
      expect(autocastLinear(fine, weight, null, in16Bits).toArray()).toEqual([[3, 5]]);
    });
  });

  it("equals linear for any sizes, types and layouts, with and without bias", () => {
    fc.assert(fc.property(anyCase, check), { numRuns: rounds(60, 300) });
  });

  it("equals linear at the ends of blocks, groups and pieces: long sums, many rows, many outputs", () => {
    const plain = { dtype: "float32", layout: "plain" } as const;
    const turned = { dtype: "bfloat16", layout: "turned" } as const;
    for (const [rows, outputs, inner] of [
      [1000, 70, 1100],
      [65, 1700, 513],
      [900, 1000, 65],
      [70, 40, 5000],
      [2000, 33, 31],
    ] as const) {
      const shape = { rows, outputs, inner, withBias: true, resultDtype: "float32" } as const;
      check({ ...shape, input: plain, weight: turned, transposed: false, withResidual: true });
      check({ ...shape, input: turned, weight: plain, transposed: true, withResidual: false });
    }
  });

  it("keeps leading dimensions, and gives each row the same result as alone", () => {
    scope(() => {
      const [input, weight, bias] = [bfloat16(6, 13, 1024), bfloat16(70, 1024), bfloat16(70)];
      const together = autocastLinear(input, weight, bias, in16Bits);
      expect(together.shape).toEqual([6, 13, 70]);
      const alone = Array.from({ length: 78 }, (_, row) => {
        const one = input.view([78, 1, 1024]).narrow(0, row, 1);
        return Array.from(numbers(autocastLinear(one, weight, bias, in16Bits)));
      });
      expectClose(numbers(together), alone.flat(), 2 * ROUNDING);
      // For few rows it is the same sum in the same order everywhere.
      const few = autocastLinear(input.view([78, 1024]).narrow(0, 0, 64), weight, bias, in16Bits);
      expect(Array.from(numbers(few))).toEqual(alone.slice(0, 64).flat());
      // On tiles, for any number of rows and any weight type.
      if (engineInformation().isa !== "amx") return;
      expect(Array.from(numbers(together))).toEqual(alone.flat());
      const master = autocastLinear(input, weight.to("float32"), bias.to("float32"), in16Bits);
      expect(Array.from(numbers(master))).toEqual(alone.flat());
    });
  });

  it("multiplies few float32 rows like linear, with bitwise equal gradients", () => {
    fc.assert(
      fc.property(anyCase, ({ rows, outputs, inner, input, weight, withBias, withResidual, transposed }) => {
        scope(() => {
          const x = laidOut(input.layout, rows, inner, "float32");
          const [height, width] = transposed ? [inner, outputs] : [outputs, inner];
          const stored = laidOut(weight.layout, height, width, "float32");
          const bias = withBias ? randn([outputs]) : null;
          const residual = withResidual ? laidOut(input.layout, rows, outputs, "float32") : null;
          const multiply = () => autocastLinear(x, stored, bias, { dtype: "float32", transposed, residual });
          const got = noGrad(multiply);
          const operands = [x, stored, bias, residual].filter((operand) => operand !== null);
          const exactOperands = operands.map((operand) => wide(operand).detach().requiresGrad_());
          for (const operand of operands) operand.requiresGrad_();
          const recorded = multiply();
          expect(Array.from(numbers(recorded.detach()))).toEqual(Array.from(numbers(got)));
          const arriving = randn([rows, outputs]);
          recorded.mul(arriving).sum().backward();
          const [wideX, wideStored] = exactOperands as [Tensor, Tensor];
          const wideBias = bias === null ? null : exactOperands[2]!;
          let reference = linear(wideX, transposed ? wideStored.t() : wideStored, wideBias);
          if (residual !== null) reference = reference.add(exactOperands.at(-1)!);
          reference.mul(wide(arriving)).sum().backward();
          operands.forEach((operand, at) => {
            const length = Math.sqrt(Math.max(rows, inner, outputs));
            expectClose(numbers(operand.grad!), numbers(exactOperands[at]!.grad!), SUMS * length);
          });
          for (const operand of operands) operand.grad = null;
          for (const operand of operands) operand.requiresGrad_(false);
          const product = linear(wide(x), wide(transposed ? stored.t() : stored), bias && wide(bias));
          const exact = residual === null ? product : product.add(wide(residual));
          expectClose(numbers(got), numbers(exact), SUMS * Math.sqrt(inner));
        });
      }),
      { numRuns: rounds(50, 200) },
    );
  });

  it("gives each of few rows the same result as alone", () => {
    const { isa } = engineInformation();
    // Above the limit, operands are packed for tiles and pairs; numbers that have to be converted are read in place for
    // any number of rows.
    const most = { amx: 192, avx512_bf16: 128 }[isa as string] ?? 300;
    for (const [dtype, transposed, inner, rows] of [
      ["bfloat16", false, 160, most],
      ["float32", false, 150, 128],
      ["float32", true, 150, 128],
      // More than fits in a second-level cache.
      ["bfloat16", false, 3040, most],
      ["float32", false, 3001, 128],
    ] as const) {
      scope(() => {
        const input = randn([rows, inner]).to(dtype);
        const byOutput = randn([75, inner]).to(dtype);
        const weight = transposed ? byOutput.t() : byOutput; // like GPT-2's projections
        const of = (count: number, first = 0) =>
          numbers(
            noGrad(() =>
              autocastLinear(input.narrow(0, first, count), weight, null, {
                dtype,
                transposed,
                resultDtype: "float32",
              }),
            ),
          );
        const alone = Array.from({ length: rows }, (_, row) => [...of(1, row)]).flat();
        for (const count of [2, 3, 4, 5, 18, 64, 70, 100, rows])
          expect([...of(count)]).toEqual(alone.slice(0, count * 75));
      });
    }
  });

  it("has gradients through any leading dimensions, with and without bias", () => {
    for (const [leading, resultDtype, withBias] of [
      [[2, 3], "bfloat16", true],
      [[2, 3], "float32", true],
      [[2, 3], "bfloat16", false],
      [[2, 1, 3], "float32", false],
      [[], "bfloat16", true],
      [[0, 3], "bfloat16", true],
    ] as const) {
      scope(() => {
        const input = randn([...leading, 24]);
        const weight = randn([10, 24]).requiresGrad_();
        const bias = withBias ? randn([10]).requiresGrad_() : null;
        const result = autocastLinear(input, weight, bias, { dtype: "bfloat16", resultDtype });
        expect(result.shape).toEqual([...leading, 10]);
        result.sum().backward();
        const rows = rounded(input).reshape([-1, 24]);
        const each = rows.sum([0], { keepdim: true }).expand([10, 24]);
        expectClose(numbers(weight.grad!), numbers(each), SUMS * 24);
        if (bias !== null) expectClose(numbers(bias.grad!), numbers(ones([10]).mul(rows.shape[0]!)), SUMS);
      });
    }
  });

  it("sums a bias's gradient column by column, without rounding float32 terms", () => {
    scope(() => {
      const whole = (row: number, column: number) => ((7 * row + 3 * column) % 11) - 5;
      const gradientOf = (rows: number, value: (row: number, column: number) => number) =>
        tensor(Array.from({ length: rows }, (_, row) => Array.from({ length: 37 }, (_, c) => value(row, c))));
      const biasGradient = (gradient: Tensor, resultDtype: "bfloat16" | "float32") => {
        const bias = zeros([37]).requiresGrad_();
        const rows = gradient.size(0);
        const options = { dtype: "bfloat16", resultDtype } as const;
        autocastLinear(ones([rows, 24]), ones([37, 24]), bias, options).backward(gradient.to(resultDtype));
        return numbers(bias.grad!);
      };
      for (const rows of [1, 5, 150]) {
        const sums = Array.from({ length: 37 }, (_, c) =>
          Array.from({ length: rows }, (_, row) => whole(row, c)).reduce((sum, value) => sum + value, 0),
        );
        for (const type of ["bfloat16", "float32"] as const) {
          expect(Array.from(biasGradient(gradientOf(rows, whole), type), Number)).toEqual(sums);
        }
      }
      // 1 + 2⁻¹² is 1 in bfloat16.
      const fine = biasGradient(
        gradientOf(4, () => 1 + 2 ** -12),
        "float32",
      );
      expect(new Set(Array.from(fine, Number))).toEqual(new Set([4 + 2 ** -10]));
    });
  });

  it("keeps float32 sums if requested, also for one row and for a strided weight", () => {
    // With other draws, one in several hundred exceeds the bound for sequential sums.
    manualSeed(1);
    for (const rows of [1, 3, 5, 17, 90, 150]) {
      for (const [layout, dtype, transposed] of [
        ["plain", "bfloat16", false],
        ["apart", "bfloat16", false],
        ["plain", "bfloat16", true],
        ["plain", "float32", false],
      ] as const) {
        scope(() => {
          const stored = laidOut(layout, transposed ? 1000 : 130, transposed ? 130 : 1000, dtype);
          const input = bfloat16(rows, 1000);
          const options = { dtype: "bfloat16", resultDtype: "float32", transposed } as const;
          const got = autocastLinear(input, stored, null, options);
          const exact = linear(wide(input), rounded(transposed ? stored.t() : stored));
          const error = got.to("float64").sub(exact).abs().max().item() as number;
          // Of numbers around 30; rounding to bfloat16 would cost 0.1. Sequential sums of a thousand numbers are
          // rounded by 1.1e-6 each (partial sums of 32 to 64), with a total deviation of 3.5e-5: packed for tiles or
          // pairs, and in a BLAS. Vector kernels for few rows have at least eight sums, each of an eighth of the
          // numbers.
          const { isa } = engineInformation();
          const isFew = rows <= 128 || (isa !== "avx512_bf16" && isa !== "amx");
          const isRead = isFew && layout === "plain" && dtype === "bfloat16" && !transposed;
          const packed = isa === "avx512_bf16" ? 2e-4 : 1e-4;
          expect(error).toBeLessThan(isRead && isa !== "amx" ? 4e-5 : packed);
        });
      }
    }
  });

  it("equals the bias if the inner size is 0", () => {
    scope(() => {
      const bias = tensor([1, -2]);
      const got = autocastLinear(ones([3, 0]), ones([2, 0]), bias, in16Bits);
      expect(got.toArray()).toEqual([
        [1, -2],
        [1, -2],
        [1, -2],
      ]);
    });
  });

  it("propagates infinities and NaN to their own rows only", () => {
    for (const count of [4, 100]) {
      scope(() => {
        const rows = Array.from({ length: count }, (_, row) =>
          Array.from({ length: 32 }, (_value, at) =>
            at === 5 ? [Infinity, NaN, 1, -Infinity][row % 4]! : 1,
          ),
        );
        const weight = tensor(
          Array.from({ length: 17 }, () => Array(32).fill(2) as number[]),
          in16Bits,
        );
        const got = autocastLinear(tensor(rows, in16Bits), weight, null, in16Bits).toArray() as number[][];
        got.forEach((row, at) => expect([...new Set(row)]).toEqual([[Infinity, NaN, 64, -Infinity][at % 4]]));
      });
    }
  });

  it("equals linear in every other type, with gradients", () => {
    scope(() => {
      const [input, weight, bias] = [randn([5, 32]), randn([8, 32]), randn([8])];
      const got = autocastLinear(input, weight, bias, { dtype: "float32" });
      expectClose(numbers(got), numbers(linear(wide(input), wide(weight), wide(bias))), SUMS * Math.sqrt(32));
      const narrowed = autocastLinear(wide(input), weight, null, {
        dtype: "float64",
        resultDtype: "float32",
      });
      expect(narrowed.dtype).toBe("float32");
      expectClose(numbers(narrowed), numbers(linear(wide(input), wide(weight))), 1e-6);
      const [x, w, b] = [randn([3, 4]), randn([2, 4]), randn([2])].map(wide);
      checkGradient((p, q, r) => autocastLinear(p!, q!, r!, { dtype: "float64" }), [x!, w!, b!]);
    });
  });

  it("has linear's gradients, each in its operand's type", () => {
    fc.assert(
      fc.property(anyCase, ({ rows, outputs, inner, input, weight, transposed, resultDtype }) => {
        scope(() => {
          const x = laidOut(input.layout, rows, inner, input.dtype).detach().requiresGrad_();
          const [height, width] = transposed ? [inner, outputs] : [outputs, inner];
          const w = laidOut(weight.layout, height, width, weight.dtype).detach().requiresGrad_();
          const b = randn([outputs]).to(weight.dtype).requiresGrad_();
          const residual = randn([rows, outputs]).to(resultDtype).requiresGrad_();
          const upstream = randn([rows, outputs]).to(resultDtype);
          const options = { dtype: "bfloat16", resultDtype, transposed, residual } as const;
          autocastLinear(x, w, b, options).mul(upstream).sum().backward();
          expect(Array.from(numbers(residual.grad!))).toEqual(Array.from(numbers(upstream)));
          const gradient = rounded(upstream);
          const ofWeight = gradient.t().matmul(rounded(x.detach()));
          const expected = [
            gradient.matmul(rounded(transposed ? w.detach().t() : w.detach())),
            transposed ? ofWeight.t() : ofWeight,
            wide(upstream).sum([0]),
          ];
          [x, w, b].forEach((each, at) => {
            expect(each.grad!.dtype).toBe(each.dtype);
            expect(each.grad!.shape).toEqual(each.shape);
            const length = [outputs, rows, rows][at]!;
            const isExact = each.dtype === "float32";
            expectClose(
              numbers(each.grad!),
              numbers(expected[at]!),
              isExact ? SUMS * Math.sqrt(length) : 2 * ROUNDING,
            );
          });
        });
      }),
      { numRuns: rounds(40, 150) },
    );
  });

  it("records nothing without gradients, and gives none to operands that require none", () => {
    scope(() => {
      const [input, weight] = [bfloat16(40, 32), bfloat16(8, 32)];
      weight.requiresGrad_();
      expect(noGrad(() => autocastLinear(input, weight, null, in16Bits)).requiresGrad).toBe(false);
      autocastLinear(input, weight, null, in16Bits).sum().backward();
      expect(weight.grad).not.toBeNull();
      expect(input.grad).toBeNull();
    });
  });

  it.runIf(mayUseTiles)("reads master weights in place: no copy in another type or order", () => {
    scope(() => {
      const weight = randn([1024, 1024]); // 4 MiB
      const input = bfloat16(64, 1024);
      const before = memoryAllocated();
      resetPeakMemoryStats();
      noGrad(() => scope(() => autocastLinear(input, weight.t(), null, in16Bits)));
      // The result, a copy of the input, and the partial sums.
      expect(maxMemoryAllocated() - before).toBeLessThan(2 ** 20);
    });
  });

  it("refuses the same arguments as linear", () => {
    scope(() => {
      const refused = (...given: [Tensor, Tensor, Tensor | null]) =>
        expect(() => autocastLinear(...given, in16Bits)).toThrow(TorchError);
      refused(bfloat16(2, 32), bfloat16(4, 64), null);
      refused(bfloat16(2, 32), bfloat16(4, 32), bfloat16(5));
      refused(bfloat16(100, 32), bfloat16(4, 64), null);
      refused(bfloat16(2, 32), bfloat16(4), null);
      refused(bfloat16(2, 32), bfloat16(4, 32), bfloat16(1));
      refused(tensor(1, in16Bits), bfloat16(4, 32), null);
      expect(() => autocastLinear(3 as unknown as Tensor, bfloat16(4, 32), null, in16Bits)).toThrow(
        "autocastLinear: input must be a Tensor",
      );
      const resultDtype = "int64";
      expect(() =>
        autocastLinear(bfloat16(2, 32), bfloat16(4, 32), null, { dtype: "bfloat16", resultDtype }),
      ).toThrow('autocastLinear: resultDtype must be bfloat16 or float32, got "int64"');
    });
  });
});
