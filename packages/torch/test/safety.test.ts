import { describe, expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import {
  autocastLinear,
  autocastLayerNorm,
  conv1d,
  ColumnRuns,
  copyColumns,
  decodeAttention,
  full,
  fusedAttention,
  ones,
  randint,
  randn,
  scope,
  selectiveLogSoftmax,
  sortedTopK,
  tensor,
  zeros,
  type Tensor,
} from "../src/index.js";
import { addon } from "../src/native.js";
import { expectNoLeaks } from "./live-tensors.js";

// Calls of the public interface that once crashed the process, read freed memory, or computed with wrong numbers. A
// crash ends this process and fails the file.
expectNoLeaks();

/** A list whose first element is read by running `effect`. */
function listWith(values: number[], effect: () => void): number[] {
  const [first] = values;
  return Object.defineProperty([...values], 0, {
    get: () => {
      effect();
      return first;
    },
  });
}

describe("JavaScript that runs while arguments are read", () => {
  it("cannot free an array's memory once its address was taken", () => {
    const data = new Float32Array(1 << 18).fill(1);
    const shape = listWith([1 << 18], () => structuredClone(data.buffer, { transfer: [data.buffer] }));
    expect(() => tensor(data, { shape })).toThrow(/^fromData: shape needs 1048576 bytes of data, got 0$/u);
  });

  it("cannot dispose of a tensor that was read before", () => {
    scope(() => {
      const first = ones([3]);
      const made: Tensor[] = [];
      // Enough new tensors for the table of tensors to be reallocated.
      const sizes = listWith([3, 2], () => {
        first.dispose();
        for (let i = 0; i < 5000; i += 1) made.push(zeros([1]));
      });
      expect(first.view([3, 1]).expand(sizes).toArray()).toEqual([
        [1, 1],
        [1, 1],
        [1, 1],
      ]);
    });
  });
});

describe("sizes that overflow", () => {
  const huge = 2 ** 52;
  const words = (...shape: number[]) => zeros(shape, { dtype: "bfloat16" });

  it("are passed to libtorch, or refused, by every loop that multiplies sizes", () => {
    scope(() => {
      const query = words(1, 1, 1, 1);
      const stretched = (dim: number, length = huge) =>
        query.expand([0, 1, 2, 3].map((at) => (at === dim ? length : 1)));
      const whole = tensor([[0, 0, 1]], { dtype: "int32" });
      expect(decodeAttention(query, stretched(2), stretched(2), whole, 1)).toBeNull();
      expect(decodeAttention(stretched(0), stretched(0), stretched(0), whole, 1)).toBeNull();
      expect(decodeAttention(stretched(1), query, query, whole, 1)).toBeNull();
      // The product of heads and columns overflows, though neither number does.
      const heads = stretched(1, 2 ** 40);
      expect(decodeAttention(heads, stretched(2, 2 ** 40), stretched(2, 2 ** 40), whole, 1)).toBeNull();
      for (const [q, k] of [
        [query, stretched(2)],
        [stretched(2), query],
        [heads, stretched(2, 2 ** 40)],
        [stretched(0), stretched(0)],
      ] as [Tensor, Tensor][]) {
        expect(fusedAttention(q, k, k, [], 1)).toBeNull();
      }
      const attempts = [
        () =>
          fusedAttention(
            stretched(2, 2 ** 22),
            stretched(2, 2 ** 22),
            stretched(2, 2 ** 22),
            [words(1, 1, 1).expand([1, 2 ** 22, 2 ** 22])],
            1,
          ),
        () =>
          decodeAttention(
            query,
            stretched(2, 2 ** 30),
            stretched(2, 2 ** 30),
            tensor([[0, 0, 2 ** 30]], { dtype: "int32" }),
            1,
            {
              order: tensor([0], { dtype: "int32" }),
              pieces: tensor([[0, 0, -1, 0, 2]], { dtype: "int32" }),
            },
          ),
        () =>
          autocastLayerNorm(zeros([0, 2 ** 45]), zeros([1]).expand([2 ** 45]), zeros([1]).expand([2 ** 45]), {
            epsilon: 1,
            dtype: "bfloat16",
          }),
        () => selectiveLogSoftmax(words(1, 1).expand([huge, 1]), zeros([0], { dtype: "int64" }), "float32"),
        () => sortedTopK(zeros([1, 1]).expand([huge, 1]), 1),
        () =>
          autocastLinear(words(1, 1).expand([1, huge]), words(1, 1).expand([1, huge]), null, {
            dtype: "bfloat16",
          }),
      ];
      for (const attempt of attempts) {
        try {
          expect(attempt()).toBeNull();
        } catch (error) {
          expect(error).toBeInstanceOf(TorchError);
        }
      }
    });
  });
});

describe("quotients outside their integer type", () => {
  const least = { int64: -(2n ** 63n), int32: -(2n ** 31n), int16: -(2n ** 15n), int8: -(2n ** 7n) };
  type Integer = keyof typeof least;
  const leastOf = (dtype: Integer, shape: number[] = [4]) => {
    const value = least[dtype];
    if (dtype === "int64") return tensor(BigInt64Array.of(value)).expand(shape).clone();
    return tensor([Number(value)], { dtype })
      .expand(shape)
      .clone();
  };
  const divisions: Record<string, (a: Tensor, b: Tensor | number) => Tensor> = {
    remainder: (a, b) => (typeof b === "number" ? a.remainder(b) : a.remainder(b)),
    fmod: (a, b) => (typeof b === "number" ? a.fmod(b) : a.fmod(b)),
    floorDivide: (a, b) => (typeof b === "number" ? a.floorDivide(b) : a.floorDivide(b)),
    "div, trunc": (a, b) => a.div(b as Tensor, { roundingMode: "trunc" }),
    "div, floor": (a, b) => a.div(b as Tensor, { roundingMode: "floor" }),
    remainder_: (a, b) => a.remainder_(b as Tensor),
    fmod_: (a, b) => a.fmod_(b as Tensor),
    floorDivide_: (a, b) => a.floorDivide_(b as Tensor),
    "div_, trunc": (a, b) => a.div_(b as Tensor, { roundingMode: "trunc" }),
  };

  it.each(Object.entries(divisions))("%s refuses the least int32 and int64 by −1", (_, divide) => {
    scope(() => {
      for (const dtype of ["int32", "int64"] as const) {
        const rule = new RegExp(`${least[dtype]} cannot be divided by -1: the quotient is no ${dtype}`, "u");
        expect(() => divide(leastOf(dtype), -1)).toThrow(rule);
        expect(() => divide(leastOf(dtype), full([4], -1, { dtype }))).toThrow(rule);
        expect(() => divide(leastOf(dtype, [3, 4]), tensor([5, 7, -1, 2], { dtype }))).toThrow(TorchError);
        // An int64 number that represents an int32 one.
        expect(() => divide(leastOf("int32"), tensor(-1, { dtype: "int64" }))).toThrow(TorchError);
      }
    });
  });

  it("works for all other values", () => {
    scope(() => {
      for (const dtype of ["int32", "int64"] as const) {
        const values = leastOf(dtype, [2]);
        values.narrow(0, 1, 1).fill_(7);
        const by = tensor([2, -1], { dtype });
        expect(values.remainder(by).toArray()).toEqual([0, 0]);
        expect(values.narrow(0, 1, 1).floorDivide(-1).toArray()).toEqual([-7]);
        expect(values.div(-1).dtype).toBe("float32");
      }
      for (const dtype of ["int8", "int16"] as const)
        expect(leastOf(dtype, [1]).remainder(-1).toArray()).toEqual([0]);
      // The least int32 is one of many in int64.
      const wide = leastOf("int32", [2]).to("int64");
      expect(wide.floorDivide(tensor([-1, -1], { dtype: "int64" })).toArray()).toEqual([2 ** 31, 2 ** 31]);
      expect(() => tensor([1], { dtype: "int32" }).remainder(0)).toThrow(/ZeroDivisionError/u);
    });
  });
});

it("conv1d refuses groups, strides, paddings and dilations that libtorch cuts to 0", () => {
  scope(() => {
    const [input, weight] = [randn([1, 2, 8]), randn([2, 2, 3])];
    for (const numbers of [
      [1, 0, 1, 2 ** 40],
      [1, 0, 1, 0],
      [1, 0, 1, 2 ** 32],
      [2 ** 32, 0, 1, 1],
      [1, 2 ** 32, 1, 1],
      [1, 0, 2 ** 32, 1],
    ]) {
      const [stride, padding, dilation, groups] = numbers as [number, number, number, number];
      expect(() => conv1d(input, weight, null, stride, padding, dilation, groups)).toThrow(
        /^aten::conv1d: (groups|stride|padding|dilation) must be/u,
      );
    }
    expect(conv1d(input, weight).shape).toEqual([1, 2, 6]);
  });
});

it("random numbers starting at the greatest int64 are refused: libtorch would loop forever", () => {
  scope(() => {
    const greatest = (2n ** 63n - 1n) as unknown as number;
    expect(() => zeros([3]).random_(greatest, null)).toThrow(TorchError);
    expect(() => randint(greatest, greatest, [3], { dtype: "float32" })).toThrow(TorchError);
    const drawn = zeros([3], { dtype: "int64" }).random_(5, 6);
    expect(drawn.toArray()).toEqual([5, 5, 5]);
  });
});

it("repetitions with an overflowing total are refused: libtorch would write past the result", () => {
  scope(() => {
    const repeats = 2n ** 62n;
    const rule = /^aten::repeat_interleave.*: the repetitions would be more elements than can be counted/u;
    expect(() => zeros([5, 16]).repeatInterleave(repeats as unknown as number)).toThrow(rule);
    // Their sum is 4 in 64 bits.
    const wrapping = tensor(BigInt64Array.of(repeats, repeats, repeats, repeats + 4n));
    expect(() => zeros([4]).repeatInterleave(wrapping)).toThrow(rule);
    expect(zeros([2]).repeatInterleave(3).shape).toEqual([6]);
    expect(
      tensor([7, 8])
        .repeatInterleave(tensor(BigInt64Array.of(0n, 2n)))
        .toArray(),
    ).toEqual([8, 8]);
  });
});

it("an empty dimension is not split into billions of chunks: libtorch would create each of them", () => {
  scope(() => {
    const most = 2 ** 31 - 1;
    const rule = /^aten::chunk: a dimension of size 0 cannot be cut into 2147483647 pieces; at most 1048576/u;
    expect(() => zeros([0, 8]).chunk(most)).toThrow(rule);
    expect(() => zeros([8, 0]).chunk(most, { dim: -1 })).toThrow(/size 0/u);
    expect(zeros([0, 8]).chunk(3)).toHaveLength(3);
    expect(zeros([4, 0]).chunk(most)).toHaveLength(4);
  });
});

it("the median along an expanded dimension is its single number: libtorch reads beyond it", () => {
  scope(() => {
    const column = tensor([5, 7], { shape: [2, 1] }).requiresGrad_();
    for (const dim of [-1, 1]) {
      const [values] = column.expand([2, 33]).median(dim);
      expect(values.toArray()).toEqual([5, 7]);
      values.sum().backward();
    }
    expect(column.grad!.toArray()).toEqual([[2], [2]]);
    expect(column.expand([2, 33]).median(0, { keepdim: true })[0].shape).toEqual([1, 33]);
  });
});

describe("loops that write into a given tensor", () => {
  /** The sum of squares of `saved`, whose gradient would be wrong if `saved` changed before the backward pass. */
  const squares = (saved: Tensor) => {
    const input = ones(saved.shape).requiresGrad_();
    return input.mul(saved).sum();
  };
  const changed = /has been modified by an inplace operation|changed in place/u;

  it("are noticed by autograd: copyColumns", () => {
    scope(() => {
      const buffer = full([1, 2, 48, 64], 3);
      const loss = squares(buffer);
      const view = squares(buffer.narrow(2, 0, 4));
      const runs = new ColumnRuns([[0, 1, 0, 0, 2]]);
      copyColumns(buffer, zeros([1, 2, 2, 64]), runs);
      runs.dispose();
      expect(() => loss.backward()).toThrow(changed);
      expect(() => view.backward()).toThrow(changed);
      // Later recorded operations are correct.
      const after = ones(buffer.shape).requiresGrad_();
      after.mul(buffer).sum().backward();
      expect(after.grad!.sum().item()).toBe(3 * 2 * 46 * 64);
    });
  });

  it("are noticed by autograd: fusedAdam", () => {
    scope(() => {
      const [parameter, gradient, mean, square] = [1, 1, 1, 1].map(() => ones([8])) as [
        Tensor,
        Tensor,
        Tensor,
        Tensor,
      ];
      const losses = [parameter, mean, square].map(squares);
      const lists = [parameter, gradient, mean, square].map(({ handle }) => [handle]) as [
        number[],
        number[],
        number[],
        number[],
      ];
      addon().fusedAdam(...lists, [1], 0.1, 0.9, 0.99, 1e-8, 0, false);
      for (const loss of losses) expect(() => loss.backward()).toThrow(changed);
    });
  });

  it("refuse to write several numbers to one place, and copy earlier values within one tensor", () => {
    scope(() => {
      const [narrow, wide] = [new ColumnRuns([[0, 0, 0, 0, 2]]), new ColumnRuns([[0, 1, 0, 0, 3]])];
      const one = zeros([1, 1, 1, 4]).expand([1, 1, 6, 4]);
      expect(() => copyColumns(one, ones([1, 1, 2, 4]), narrow)).toThrow(TorchError);
      const buffer = tensor([0, 1, 2, 3, 4, 5]).view([1, 1, 6, 1]);
      copyColumns(buffer, buffer.narrow(2, 0, 3), wide);
      narrow.dispose();
      wide.dispose();
      expect(buffer.view([6]).toArray()).toEqual([0, 0, 1, 2, 4, 5]);
    });
  });
});

it("log-probabilities of rows with large equal logits are uniform", () => {
  scope(() => {
    for (const logit of [-1e30, -1e9, 1e9, 3e38]) {
      const logits = full([2, 64], logit, { dtype: "bfloat16" }).requiresGrad_();
      const got = selectiveLogSoftmax(logits, tensor(BigInt64Array.of(3n, 70n)), "float32");
      for (const each of got.toArray() as number[]) expect(each).toBeCloseTo(-Math.log(64), 5);
      got.sum().backward();
      const ofRow = logits.grad!.select(0, 0).toArray() as number[];
      ofRow.forEach((each, at) => expect(each).toBeCloseTo((at === 3 ? 1 : 0) - 1 / 64, 2));
    }
  });
});
