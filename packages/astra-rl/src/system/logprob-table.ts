import { tensor, type Device, type Tensor } from "@astra-rl/torch";

/** Rows of recorded log-probabilities as a float32 tensor [B, T], 0 beyond each row's length. */
export function logprobTable(rows: readonly (readonly number[])[], device: Device): Tensor {
  const columns = rows.reduce((longest, row) => Math.max(longest, row.length), 0);
  const values = new Float32Array(rows.length * columns);
  for (const [index, row] of rows.entries()) values.set(row, index * columns);
  return tensor(values, { shape: [rows.length, columns], device });
}

/** The first `lengths[i]` numbers of each row of a tensor [B, T]. */
export function tableRows(table: Tensor, lengths: readonly number[]): number[][] {
  const columns = table.shape[1]!;
  const values = table.toTypedArray() as Float32Array;
  return lengths.map((length, row) => Array.from(values.subarray(row * columns, row * columns + length)));
}
