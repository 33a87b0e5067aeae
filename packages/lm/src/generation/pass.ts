import { tensor, type Tensor } from "@astra-rl/torch";
import type { CausalLM } from "../causal-lm.js";
import { idTensor } from "../token-ids.js";
import type { CacheView } from "./cache-view.js";

/** Maximum attention scores (rows · heads · new tokens · columns) per layer in one forward pass. */
const SCORE_LIMIT = 2 ** 25;
/** Maximum logits computed at once when scoring. */
const LOGIT_LIMIT = 2 ** 24;

interface Text {
  readonly ids: readonly number[];
}

/** Maximum new tokens of each text in one pass, at least 1, so that the attention scores stay within their limit. */
export function mostColumns({ config }: CausalLM, texts: readonly Text[]): number {
  const columns = Math.max(...texts.map(({ ids }) => ids.length));
  return Math.max(1, Math.floor(SCORE_LIMIT / (texts.length * config.heads * columns)));
}

/** Maximum number of states whose logits are computed at once, at least 1. */
export const mostStates = ({ config }: CausalLM): number =>
  Math.max(1, Math.floor(LOGIT_LIMIT / config.vocabSize));

/**
 * Runs the model on the `counts[i]` ids from `starts[i]` on of each text, right-padded to `width`, and puts them into the
 * cache. A token's position equals its column in the cache.
 *
 * @param places flat indices (text · width + column) of the tokens whose states are needed; null = all
 * @returns their hidden states [places, D]; of a single token if none is needed
 */
export function statesOf(
  model: CausalLM,
  view: CacheView,
  texts: readonly Text[],
  { starts, counts, width }: { starts: readonly number[]; counts: readonly number[]; width: number },
  places: readonly number[] | null,
): Tensor {
  const { device } = model;
  view.begin(starts, counts, width);
  // Padding is token 0 at position 0; nothing attends to it.
  const ids = new Int32Array(texts.length * width);
  const positions = new Int32Array(texts.length * width);
  texts.forEach((text, row) => {
    const start = starts[row]!;
    for (let column = 0; column < counts[row]!; column += 1) {
      ids[row * width + column] = text.ids[start + column]!;
      positions[row * width + column] = start + column;
    }
  });
  const integers = (values: Int32Array) =>
    tensor(values, { dtype: "int64", shape: [texts.length, width], device });
  // A pass from which only keys and values are needed still computes one state: products with no rows would need
  // special handling.
  const chosen = places === null ? {} : { places: idTensor(places.length === 0 ? [0] : places, device) };
  const options = { positions: integers(positions), mask: null, cache: view, ...chosen };
  const hidden = model.forward(integers(ids), options);
  return hidden.reshape([-1, hidden.size(-1)]);
}
