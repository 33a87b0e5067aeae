import type { Device, DType, Tensor } from "@astra-rl/torch";

/** A model that computes a vector for every token of a text. B rows, T tokens, D hidden size. */
export interface TextEncoder {
  readonly config: TextEncoderConfig;
  readonly dtype: DType;
  readonly device: Device;

  /** Parameters under their Hugging Face names. The model owns them. */
  namedParameters(): Map<string, Tensor>;

  /**
   * @param ids int64 [B, T], special tokens included
   * @param mask bool [B, T], true = a token, false = padding on the right
   * @returns [B, T, D], the last hidden states; those of padding are meaningless. Of a classifier with L labels: [B, L],
   * the logits before any sigmoid or softmax
   */
  forward(ids: Tensor, mask: Tensor): Tensor;

  dispose(): void;
}

/** A model that computes one logit per label for every text. */
export interface SequenceClassifier extends TextEncoder {
  readonly config: SequenceClassifierConfig;
}

export interface TextEncoderConfig {
  readonly architecture: string;
  readonly modelType: string;
  readonly vocabSize: number;
  /** Maximum tokens per row, including special tokens. */
  readonly contextLength: number;
  readonly padId: number;
  /** config.json as read. */
  readonly raw: Readonly<Record<string, unknown>>;
}

export interface SequenceClassifierConfig extends TextEncoderConfig {
  /** Names of the labels in the order of the logits. */
  readonly labels: readonly string[];
}
