import fc from "fast-check";
import { expect, it } from "vitest";
import { rounds } from "../../../scripts/rounds.js";
import { TorchError } from "@astra-rl/base";
import { grad, manualSeed, randn, scope, swiglu, tensor, type Tensor } from "../src/index.js";
import { checkGradient } from "../src/testing.js";
import { expectClose, numbers } from "./expect-close.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

it.each(["float64", "float32", "bfloat16"] as const)("equals x σ(x) · y computed by hand in %s", (dtype) => {
  scope(() => {
    // σ(ln 3) = 3/4, σ(−ln 3) = 1/4.
    const third = Math.log(3);
    const got = swiglu(tensor([0, third, -third, third], { dtype }), tensor([5, 4, 4, -8], { dtype }));
    expect(got.dtype).toBe(dtype);
    const unit = { float64: 1e-15, float32: 1e-6, bfloat16: 2 ** -7 }[dtype];
    expectClose(numbers(got), [0, 3 * third, -third, -6 * third], 10 * unit);
  });
});

it("has the gradients given by finite differences", () => {
  scope(() =>
    checkGradient(
      (gate, up) => swiglu(gate!, up!),
      [randn([3, 5]).to("float64"), randn([3, 5]).to("float64")],
    ),
  );
});

it("matches its definition in float64, gradients included, for any shape, scale and layout", () => {
  fc.assert(
    fc.property(
      fc.record({
        rows: fc.integer({ min: 0, max: 40 }),
        columns: fc.integer({ min: 0, max: 500 }),
        spread: fc.constantFrom(0.01, 1, 30),
        dtype: fc.constantFrom("float32" as const, "bfloat16" as const),
        isStrided: fc.boolean(),
        seed: fc.nat(),
      }),
      ({ rows, columns, spread, dtype, isStrided, seed }) => {
        manualSeed(seed);
        scope(() => {
          const made = () => {
            const whole = randn([rows, columns + (isStrided ? 3 : 0)]).mul(spread);
            return whole.to(dtype).narrow(1, 0, columns).detach().requiresGrad_();
          };
          const [gate, up] = [made(), made()];
          const exact = [gate, up].map((each) => each.detach().to("float64").requiresGrad_());
          const arrived = randn([rows, columns]).to(dtype);
          const [got, expected] = [swiglu(gate, up), swiglu(exact[0]!, exact[1]!)];
          expect([got.dtype, got.shape]).toEqual([dtype, [rows, columns]]);
          const mine = grad(got, [gate, up], { gradOutputs: arrived });
          const theirs = grad(expected, exact, { gradOutputs: arrived.to("float64") });
          // Half a unit in the last place of bfloat16, plus a few float32 rounding errors.
          const lost = dtype === "bfloat16" ? 2 ** -8 + 2e-6 : 2e-6;
          const compare = (a: Tensor, b: Tensor, sizes = numbers(b)) => {
            const [given, wanted] = [numbers(a), numbers(b)];
            given.forEach((each, at) => {
              const allowed = lost * Math.abs(wanted[at]!) + 1e-6 * Math.abs(sizes[at]!) + 1e-33;
              expect(Math.abs(each - wanted[at]!), `number ${at}`).toBeLessThanOrEqual(allowed);
            });
          };
          compare(got, expected);
          // Near its zero, σ + x σ (1 − σ) is a difference of numbers of about 1, times these.
          compare(mine[0]!, theirs[0]!, numbers(arrived.to("float64").mul(exact[1]!.detach())));
          compare(mine[1]!, theirs[1]!);
        });
      },
    ),
    { numRuns: rounds(25, 100) },
  );
});

it("is correct at the extremes, and NaN if an operand is", () => {
  scope(() => {
    const gate = tensor([1e4, -1e4, 200, -200, -80, NaN, 1, 0], { dtype: "float32" });
    const up = tensor([2, 2, 1, 1, 1, 1, NaN, 3], { dtype: "float32" });
    const got = numbers(swiglu(gate, up));
    const wanted = [2e4, 0, 200, 0, -80 * Math.exp(-80), NaN, NaN, 0];
    got.forEach((value, at) => {
      if (Number.isNaN(wanted[at])) expect(value).toBeNaN();
      else expect(Math.abs(value - wanted[at]!)).toBeLessThanOrEqual(1e-6 * Math.abs(wanted[at]!) + 1e-33);
    });
  });
});

it("refuses operands of different shapes or types", () => {
  scope(() => {
    const [gate, narrow] = [randn([2, 3]), randn([2, 3]).to("bfloat16")];
    expect(() => swiglu(gate, randn([2, 4]))).toThrow(
      new TorchError("swiglu: up does not fit float32[2, 3]: got float32[2, 4]"),
    );
    expect(() => swiglu(gate, narrow)).toThrow(TorchError);
    expect(() => swiglu(gate, 3 as unknown as Tensor)).toThrow("swiglu: up must be a Tensor");
  });
});
