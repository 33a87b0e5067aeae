import type { Device, DType, Tensor } from "@astra-rl/torch";

/** A model that computes one logit per label for every text. B rows, T tokens, L labels. */
export interface SequenceClassifier {
  readonly config: SequenceClassifierConfig;
  readonly dtype: DType;
  readonly device: Device;

  /** Parameters under their Hugging Face names. The model owns them. */
  namedParameters(): Map<string, Tensor>;

  /**
   * @param ids int64 [B, T], special tokens included
   * @param mask bool [B, T], true = a token, false = padding on the right
   * @returns [B, L], before any sigmoid or softmax
   */
  forward(ids: Tensor, mask: Tensor): Tensor;

  dispose(): void;
}

export interface SequenceClassifierConfig {
  readonly architecture: string;
  readonly modelType: string;
  readonly vocabSize: number;
  /** Maximum tokens per row, including special tokens. */
  readonly contextLength: number;
  /** Names of the labels in the order of the logits. */
  readonly labels: readonly string[];
  readonly padId: number;
  /** config.json as read. */
  readonly raw: Readonly<Record<string, unknown>>;
}
