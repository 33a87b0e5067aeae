import { tensor, type Device, type Tensor } from "@astra-rl/torch";

/**
 * Ids and positions of one forward pass, each int64 [n, width]: of each text the `counts[i]` ids from `starts[i]` on,
 * right-padded. A token's position equals its column in the cache.
 */
export function passInputs(
  texts: readonly { readonly ids: readonly number[] }[],
  starts: readonly number[],
  counts: readonly number[],
  width: number,
  device: Device,
): { ids: Tensor; positions: Tensor } {
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
  return { ids: integers(ids), positions: integers(positions) };
}
