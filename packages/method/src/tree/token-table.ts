import { describeValue, UsageError } from "@astra-rl/base";
import { heldTensors, tensor, Tensor, type Device } from "@astra-rl/torch";

/**
 * One number per token of each row, such as log-probabilities of continuations: a tensor [B, T] in which row b has
 * `lengths[b]` tokens from the left, then zeros. The mask comes from `lengths`, never from the zeros: a token may have
 * the value 0.
 *
 * A table may carry a gradient. `scope` and `dispose` reach the tensor inside.
 */
export class TokenTable {
  /** @throws UsageError for values that are not a tensor [B, T], or lengths that do not fit them */
  constructor(
    /** [B, T] */
    readonly values: Tensor,
    /** Tokens of each row, 0 to T. */
    readonly lengths: readonly number[],
  ) {
    if (!(values instanceof Tensor) || values.ndim !== 2) {
      const got = values instanceof Tensor ? `shape [${values.shape.join(", ")}]` : describeValue(values);
      throw new UsageError("shape-mismatch", `TokenTable: values must be a tensor [B, T], got ${got}`);
    }
    const [rows, columns] = values.shape as [number, number];
    if (lengths.length !== rows) {
      throw new UsageError(
        "length-mismatch",
        `TokenTable: needs a length for each of ${rows} rows, got ${lengths.length}`,
      );
    }
    for (const [row, length] of lengths.entries()) {
      if (Number.isInteger(length) && length >= 0 && length <= columns) continue;
      throw new UsageError(
        "out-of-range",
        `TokenTable: a length must be a whole number from 0 to ${columns}, got ${describeValue(length)} for row ${row}`,
      );
    }
  }

  /** A float32 table of these numbers, right-padded with zeros, without a gradient. */
  static ofRows(rows: readonly (readonly number[])[], device: Device = "cpu"): TokenTable {
    const lengths = rows.map((row) => row.length);
    const columns = lengths.reduce((longest, length) => Math.max(longest, length), 0);
    const values = new Float32Array(rows.length * columns);
    for (const [index, row] of rows.entries()) values.set(row, index * columns);
    return new TokenTable(tensor(values, { shape: [rows.length, columns], device }), lengths);
  }

  /** True at tokens, false at padding: bool [B, T]. */
  mask(): Tensor {
    const [rows, columns] = this.values.shape as [number, number];
    const cells = Array.from({ length: rows * columns }, (_, cell) => {
      return cell % columns < this.lengths[Math.floor(cell / columns)]!;
    });
    return tensor(cells, { dtype: "bool", shape: [rows, columns], device: this.values.device });
  }

  /** The sum over each row's tokens, [B]; 0 for an empty row. */
  sums(): Tensor {
    return this.values.sum([-1]);
  }

  /** The mean over each row's tokens, [B]; 0 for an empty row. */
  means(): Tensor {
    const { dtype, device } = this.values;
    const divisors = this.lengths.map((length) => Math.max(1, length));
    return this.sums().div(tensor(divisors, { dtype, device }));
  }

  /** The numbers of each row, without padding. */
  rows(): number[][] {
    const columns = this.values.shape[1]!;
    const plain = this.values.detach();
    const values = plain.toTypedArray() as Float32Array | Float64Array;
    plain.dispose();
    return this.lengths.map((length, row) =>
      Array.from(values.subarray(row * columns, row * columns + length)),
    );
  }

  dispose(): void {
    this.values.dispose();
  }

  get [heldTensors](): Tensor {
    return this.values;
  }
}
