/** Sizes of the buffers of static steps: few, since a GPU keeps a graph for each. */

/** Rows and columns that the buffers of a static step hold. */
export interface Bucket {
  readonly rows: number;
  readonly capacity: number;
}

export const BUCKET_ROWS = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256] as const;
export const BUCKET_CAPACITIES = [64, 128, 256, 512, 1024] as const;

/** The smallest bucket that holds so much; null if none does. */
export function bucketOf(rows: number, columns: number): Bucket | null {
  const most = BUCKET_ROWS.find((each) => each >= rows);
  const capacity = BUCKET_CAPACITIES.find((each) => each >= columns);
  return most === undefined || capacity === undefined ? null : { rows: most, capacity };
}
