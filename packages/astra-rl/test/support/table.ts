import type { Tensor } from "../../src/core/index.js";

/** A [rows, columns] tensor that only holds numbers, for tests of what surrounds the engine. */
export class Table implements Tensor {
  readonly dtype: string = "float32";
  readonly shape: readonly number[];

  constructor(
    readonly rows: readonly (readonly number[])[],
    readonly requiresGrad = false,
    readonly device = "cpu",
  ) {
    this.shape = [rows.length, Math.max(0, ...rows.map((row) => row.length))];
  }

  toTypedArray(): Float32Array {
    const columns = this.shape[1]!;
    const values = new Float32Array(this.rows.length * columns);
    for (const [index, row] of this.rows.entries()) values.set(row, index * columns);
    return values;
  }

  detach(): Table {
    return new Table(this.rows, false, this.device);
  }

  dispose(): void {}
}
