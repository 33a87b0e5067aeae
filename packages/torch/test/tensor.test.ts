import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import {
  arange,
  bytesOf,
  empty,
  eye,
  full,
  linspace,
  ones,
  scope,
  Tensor,
  tensor,
  zeros,
  type DType,
} from "../src/index.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

describe("data in and out", () => {
  it("keeps typed arrays of every kind unchanged", () => {
    const arrays = [
      Float32Array.of(1.5, -0, Infinity, NaN),
      Float64Array.of(1 / 3, -1e300, NaN),
      BigInt64Array.of(2n ** 63n - 1n, -(2n ** 63n), 7n),
      Int32Array.of(2 ** 31 - 1, -(2 ** 31)),
      Int16Array.of(32767, -32768),
      Int8Array.of(127, -128),
      Uint8Array.of(0, 255),
    ];
    const dtypes: DType[] = ["float32", "float64", "int64", "int32", "int16", "int8", "uint8"];
    scope(() => {
      arrays.forEach((array, index) => {
        const made = tensor(array);
        expect(made.dtype).toBe(dtypes[index]);
        expect(made.toTypedArray()).toEqual(array);
      });
    });
  });

  it("copies: neither side sees later changes of the other", () => {
    scope(() => {
      const array = Float32Array.of(1, 2);
      const made = tensor(array);
      array[0] = 9;
      expect(made.toArray()).toEqual([1, 2]);
      const out = made.toTypedArray();
      made.zero_();
      expect(Array.from(out as Float32Array)).toEqual([1, 2]);
    });
  });

  it("reads views into the middle of a buffer, and Node's Buffers", () => {
    scope(() => {
      const whole = Float32Array.of(1, 2, 3, 4);
      expect(tensor(whole.subarray(1, 3)).toArray()).toEqual([2, 3]);
      expect(tensor(Buffer.from([1, 2, 255])).toArray()).toEqual([1, 2, 255]);
      expect(tensor(Uint16Array.of(65535)).dtype).toBe("int32");
      expect(tensor(Uint32Array.of(4294967295)).item()).toBe(4294967295);
    });
  });

  it("rounds 16-bit floats as IEEE 754 and bfloat16 specify", () => {
    scope(() => {
      // bfloat16 keeps 8 significant bits: 257 lies halfway between 256 and 258 and goes to the even 256.
      expect(tensor([257, 1.00390625, 3e38], { dtype: "bfloat16" }).toArray()).toEqual([
        256,
        1,
        226 * 2 ** 120,
      ]);
      // 3e38 is 225.7 steps of 2^120.
      // float16: 2049 is halfway between 2048 and 2050, 70000 is beyond the maximum 65504.
      expect(tensor([2049, 70000], { dtype: "float16" }).toArray()).toEqual([2048, Infinity]);
      expect(tensor([0.1], { dtype: "bfloat16" }).toTypedArray()).toBeInstanceOf(Float32Array);
    });
  });

  it("converts any bytes to bool 0 and 1", () => {
    scope(() => {
      expect(tensor([true, false]).dtype).toBe("bool");
      const made = tensor(Uint8Array.of(0, 7, 255), { dtype: "bool" });
      expect(made.toTypedArray()).toEqual(Uint8Array.of(0, 1, 1));
      expect(made.sum().item()).toBe(2);
      expect(tensor([0, 0.5, NaN], { dtype: "bool" }).toArray()).toEqual([0, 1, 1]);
    });
  });

  it("refuses data that is ragged or does not match its shape", () => {
    expect(() => tensor([[1], [2, 3]])).toThrow(
      "tensor: data must be nested evenly, as [2, 1], got [2, 3] at depth 1",
    );
    expect(() => tensor([[1], 2])).toThrow(/nested evenly/u);
    // @ts-expect-error a string is no number
    expect(() => tensor(["1"])).toThrow(/must hold numbers/u);
    expect(() => tensor([1.5], { dtype: "int64" })).toThrow(/int64 holds whole numbers in .*, got 1.5/u);
    expect(() => tensor([256], { dtype: "uint8" })).toThrow(
      "tensor: uint8 holds whole numbers in 0 … 255, got 256",
    );
    expect(() => tensor([NaN], { dtype: "int8" })).toThrow(/got NaN/u);
    expect(() => tensor([1, 2, 3], { shape: [2] })).toThrow(/shape needs 8 bytes of data, got 12/u);
    expect(() => tensor([1], { shape: [-1] })).toThrow(/must not be negative/u);
    // @ts-expect-error not a dtype
    expect(() => tensor([1], { dtype: "complex64" })).toThrow(TorchError);
    // @ts-expect-error no data at all
    expect(() => tensor(undefined)).toThrow(TorchError);
  });

  it("returns int64 exactly or refuses", () => {
    scope(() => {
      const big = tensor(BigInt64Array.of(2n ** 53n + 1n));
      expect(() => big.item()).toThrow("item: 9007199254740993 cannot be a number without loss");
      expect(() => big.toArray()).toThrow(/without loss/u);
      expect(big.toTypedArray()).toEqual(BigInt64Array.of(2n ** 53n + 1n));
      expect(tensor([2 ** 53 - 1], { dtype: "int64" }).item()).toBe(2 ** 53 - 1);
    });
  });

  it("keeps nested arrays of any regular shape, including empty ones", () => {
    const shapes = fc.array(fc.nat(3), { maxLength: 4 });
    fc.assert(
      fc.property(
        shapes,
        fc.constantFrom<DType>("float32", "float64", "int64", "bfloat16"),
        (shape, dtype) => {
          scope(() => {
            const count = shape.reduce((product, size) => product * size, 1);
            const flat = arange(count).reshape(shape).to(dtype);
            const again = tensor(flat.toArray(), { dtype, shape });
            expect(again.shape).toEqual(shape);
            expect(again.equal(flat)).toBe(true);
            expect(
              flat
                .permute(shape.map((_, i) => shape.length - 1 - i))
                .permute(shape.map((_, i) => shape.length - 1 - i))
                .toArray(),
            ).toEqual(flat.toArray());
          });
        },
      ),
      { numRuns: 100, seed: 3 },
    );
  });

  it("reads a transposed tensor in its own order", () => {
    scope(() => {
      expect(
        tensor([
          [1, 2],
          [3, 4],
        ])
          .t()
          .toArray(),
      ).toEqual([
        [1, 3],
        [2, 4],
      ]);
    });
  });
});

describe("properties of a tensor", () => {
  it("match the engine's", () => {
    scope(() => {
      const a = zeros([2, 3, 4], { dtype: "int16" });
      expect([a.shape, a.dtype, a.device, a.ndim, a.numel()]).toEqual([[2, 3, 4], "int16", "cpu", 3, 24]);
      expect([a.size(0), a.size(-1)]).toEqual([2, 4]);
      expect(() => a.size(3)).toThrow("size: dim must be an integer in -3 … 2, got 3");
      expect(() => a.size(0.5)).toThrow(/got 0.5/u);
      expect(String(a)).toBe("Tensor int16[2, 3, 4]");
      expect(tensor(5).shape).toEqual([]);
      expect(bytesOf("bfloat16")).toBe(2);
    });
  });

  it("cannot be changed through the shape array", () => {
    scope(() => {
      const { shape } = zeros([2]);
      expect(() => (shape as number[]).push(3)).toThrow(TypeError);
    });
  });
});

describe("to", () => {
  it("converts values and always returns a new handle", () => {
    scope(() => {
      const a = tensor([1.7, -2.9, 300]);
      expect(a.to("int64").toArray()).toEqual([1, -2, 300]);
      expect(a.to("bool").toArray()).toEqual([1, 1, 1]);
      const same = a.to("float32");
      expect(same).not.toBe(a);
      expect(same.sharesStorageWith(a)).toBe(true);
      expect(a.to("cpu").toArray()).toEqual(a.toArray());
      expect(a.to({ dtype: "float64", device: "cpu" }).dtype).toBe("float64");
      expect(() => a.to("nowhere")).toThrow(/^aten::to.dtype_layout: .*nowhere/u);
    });
  });
});

describe("factories", () => {
  it("create the values they are named after", () => {
    scope(() => {
      expect(zeros([2]).toArray()).toEqual([0, 0]);
      expect(ones([1, 2], { dtype: "int32" }).toArray()).toEqual([[1, 1]]);
      expect(full([2], 0.5).toArray()).toEqual([0.5, 0.5]);
      expect(full([1], true).dtype).toBe("bool");
      expect(full([1], 3).dtype).toBe("float32");
      expect(empty([2, 0]).numel()).toBe(0);
      expect(arange(3).toArray()).toEqual([0, 1, 2]);
      expect(arange(3).dtype).toBe("int64");
      expect(arange(1, 2, 0.25).toArray()).toEqual([1, 1.25, 1.5, 1.75]);
      expect(arange(5, 0, -2).toArray()).toEqual([5, 3, 1]);
      expect(arange(2, { dtype: "float64" }).dtype).toBe("float64");
      expect(linspace(0, 1, 5).toArray()).toEqual([0, 0.25, 0.5, 0.75, 1]);
      expect(eye(2).toArray()).toEqual([
        [1, 0],
        [0, 1],
      ]);
      expect(eye(1, 2, { dtype: "int64" }).toArray()).toEqual([[1, 0]]);
      expect(ones([2], { requiresGrad: true }).requiresGrad).toBe(true);
      expect(() => arange(0, 1, 0)).toThrow(/^aten::arange.start_step: step must be nonzero/u);
    });
  });

  it("create Tensors", () => {
    const made = ones([1]);
    expect(made).toBeInstanceOf(Tensor);
    made.dispose();
  });
});
