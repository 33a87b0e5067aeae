import type { Device, DType, Tensor } from "@astra-rl/torch";
import type { SequenceClassifierConfig } from "./sequence-classifier.js";

/** A model that computes a vector for every token of a text. B rows, T tokens, D hidden size. */
export interface TextEncoder {
  readonly config: Omit<SequenceClassifierConfig, "labels">;
  readonly dtype: DType;
  readonly device: Device;

  /** Parameters under their Hugging Face names. The model owns them. */
  namedParameters(): Map<string, Tensor>;

  /**
   * @param ids int64 [B, T], special tokens included
   * @param mask bool [B, T], true = a token, false = padding on the right
   * @returns [B, T, D], the last hidden states; those of padding are meaningless
   */
  forward(ids: Tensor, mask: Tensor): Tensor;

  dispose(): void;
}
