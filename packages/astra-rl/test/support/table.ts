import { tensor, type Tensor } from "@astra-rl/torch";

/** A [rows, columns] float32 tensor, short rows filled up with 0. */
export function table(rows: readonly (readonly number[])[], requiresGrad = false): Tensor {
  const columns = Math.max(0, ...rows.map((row) => row.length));
  const values = new Float32Array(rows.length * columns);
  for (const [index, row] of rows.entries()) values.set(row, index * columns);
  return tensor(values, { shape: [rows.length, columns] }).requiresGrad_(requiresGrad);
}
