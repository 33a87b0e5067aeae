import { AstraError } from "@astra-rl/base";
import { arange, cast, dispose, keep, scope, zeros, type Tensor } from "@astra-rl/torch";
import type { AttentionCache, CachedRows } from "../../causal-lm.js";
import type { CacheShape } from "../key-value-cache.js";
import { PassTensors } from "../pass-tensors.js";
import type { Bucket } from "./buckets.js";

/** Keys and values of each layer, [rows, G, capacity, E]. */
export interface StaticBuffers {
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];
}

/** Buffers of zeros: a masked column must not turn a sum into NaN. The caller owns them. */
export function makeBuffers(shape: CacheShape, { rows, capacity }: Bucket): StaticBuffers {
  const { keyValueHeads, headDimension, dtype, device, layers } = shape;
  const made = () =>
    Array.from({ length: layers }, () =>
      keep(zeros([rows, keyValueHeads, capacity, headDimension], { dtype, device })),
    );
  return { keys: made(), values: made() };
}

/**
 * The cache as passes see it that always compute the same rows and columns: where a new token goes, and which columns it
 * attends to, is computed on the device from the positions there, so that a pass does not change from token to token.
 */
export class StaticCache implements AttentionCache, CachedRows {
  readonly first = 0;
  readonly shared = null;
  readonly count: number;
  /** int64 [rows, G]: where each row's and head's first column lies among all columns. */
  readonly #bases: Tensor;
  /** int64 [capacity] */
  readonly #columns: Tensor;
  readonly #made = new PassTensors();
  #layer = 0;

  /** @param positions int64 [rows, 1]: the column of each row's next token */
  constructor(
    readonly buffers: StaticBuffers,
    private readonly positions: Tensor,
  ) {
    const [rows, heads, capacity] = this.key.shape as [number, number, number];
    const { device } = positions;
    this.count = rows;
    this.#bases = keep(
      scope(() =>
        arange(0, rows * heads * capacity, capacity, { dtype: "int64", device }).view([rows, heads]),
      ),
    );
    this.#columns = keep(arange(0, capacity, 1, { dtype: "int64", device }));
  }

  get key(): Tensor {
    return this.buffers.keys[this.#layer]!;
  }

  get value(): Tensor {
    return this.buffers.values[this.#layer]!;
  }

  /** Runs a pass of one new token per row. */
  during<T>(pass: () => T): T {
    try {
      return pass();
    } finally {
      this.#made.dispose();
      this.#layer = 0;
    }
  }

  append(layer: number, key: Tensor, value: Tensor): readonly CachedRows[] {
    this.#layer = layer;
    const places = this.once("places", () => this.#bases.add(this.positions).view([-1]));
    const write = (to: Tensor, from: Tensor) => {
      const size = to.size(3);
      to.view([-1, size]).indexCopy_(0, places, cast(from, to.dtype).reshape([-1, size]));
    };
    write(this.key, key);
    write(this.value, value);
    return [this];
  }

  rectangle(): [key: Tensor, value: Tensor] {
    return [this.key, this.value];
  }

  mask(window: number | null): Tensor {
    const back = this.positions.view([this.count, 1, 1, 1]).sub(this.#columns);
    return window === null ? back.ge(0) : back.ge(0).logicalAnd(back.lt(window));
  }

  ranges(): Tensor {
    throw new AstraError(
      "internal: StaticCache.ranges: static steps are for devices without kernels of ours",
    );
  }

  once(name: string, make: () => Tensor): Tensor {
    return this.#made.once(name, make);
  }

  dispose(): void {
    dispose([this.#bases, this.#columns]);
  }
}
