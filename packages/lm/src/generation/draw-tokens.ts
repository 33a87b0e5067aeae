import { cast, tensor, type Tensor } from "@astra-rl/torch";
import { idTensor } from "../token-ids.js";
import type { Row } from "./continuous-row.js";
import { keyedUniform } from "./keyed-random.js";
import {
  candidateIds,
  drawCandidate,
  filterLogits,
  holdBack,
  likeliest,
  penalizeRepetition,
} from "./sampling-filters.js";

/** One token for each of these rows, which are of one kind. @param logits [n, V] */
export function drawTokens(rows: readonly Row[], logits: Tensor, vocabSize: number): number[] {
  const [{ sampling, isHeldBack, ends }] = rows as [Row];
  const { greedy, repetitionPenalty } = sampling!;
  const { device } = logits;
  let shaped = logits;
  if (repetitionPenalty !== 1) {
    const longest = Math.max(...rows.map(({ ids }) => ids.length));
    // Shorter rows are padded with their first id: repeats do not matter.
    const seen = rows.flatMap(({ ids }) => [...ids, ...Array<number>(longest - ids.length).fill(ids[0]!)]);
    shaped = penalizeRepetition(
      cast(logits, "float32"),
      idTensor(seen, device).view([rows.length, longest]),
      repetitionPenalty,
    );
  }
  const held = isHeldBack ? [...ends.keys()].filter((id) => id < vocabSize) : [];
  if (held.length > 0) shaped = holdBack(shaped, idTensor(held, device));
  if (greedy) return Array.from(likeliest(shaped).toTypedArray(), Number);
  const candidates = filterLogits(shaped, sampling!);
  const values = Float64Array.from(rows, (row) => keyedUniform(row.request.key!, row.sampled));
  const uniforms = tensor(values, { dtype: "float64", shape: [values.length, 1], device });
  return Array.from(candidateIds(candidates, drawCandidate(candidates, uniforms)).toTypedArray(), Number);
}
