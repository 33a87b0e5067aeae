import { tensor, type Tensor } from "@astra-rl/torch";
import type { PolicyBranch } from "./policy-types.js";

/** Branches of one tree share prefixes, and most of them are computed on the rank that grew them. */
export const episodeOf = ({ episode }: { episode?: number }, index: number) => episode ?? -1 - index;

/** Groups a flat list in branch order by branch. */
export function regroup<S, A, T>(values: readonly T[], branches: readonly PolicyBranch<S, A>[]): T[][] {
  let start = 0;
  return branches.map(({ turns }) => values.slice(start, (start += turns.length)));
}

/** Rows as a tensor with the dtype, device and shape [B, T] of another, padded with 0. */
export function tableLike(rows: readonly (readonly number[])[], like: Tensor): Tensor {
  const columns = like.shape[1]!;
  const values = new Float64Array(rows.length * columns);
  for (const [index, row] of rows.entries()) values.set(row, index * columns);
  return tensor(values, { shape: [rows.length, columns] })
    .to(like.dtype)
    .to(like.device);
}
