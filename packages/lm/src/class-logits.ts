import { noGrad, scope, tensor } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { runsOf } from "./runs.js";
import type { SequenceClassifier } from "./text-encoder.js";
import type { Tokenizer } from "./tokenizer.js";

export interface ClassLogitsOptions {
  /** Maximum number of texts per forward pass. Default 32. */
  batchSize?: number;
  /** Called with the index of each text of which the model reads only a part, since the rest is beyond its window. */
  onCut?: (index: number) => void;
}

/**
 * A classifier's logits for texts, before any sigmoid or softmax.
 *
 * Texts of similar length share a forward pass to reduce padding; batching changes results only in the last digits.
 *
 * @returns for each text, in order, one logit per label
 */
export function classLogits(
  { model, tokenizer }: { model: SequenceClassifier; tokenizer: Tokenizer },
  texts: readonly string[],
  { batchSize = 32, onCut = () => {} }: ClassLogitsOptions = {},
): number[][] {
  if (!Number.isInteger(batchSize) || batchSize < 1) {
    throw new UsageError(
      "out-of-range",
      `classLogits: batchSize must be a whole number of at least 1, got ${batchSize}`,
    );
  }
  const rows = texts.map((text, index) => {
    const { ids, isCut } = rowOf(model, tokenizer, text);
    if (isCut) onCut(index);
    return ids;
  });
  const logits: number[][] = texts.map(() => []);
  for (const batch of batchesOf(rows, batchSize)) {
    const values = forward(
      model,
      batch.map((index) => rows[index]!),
    );
    for (const [place, index] of batch.entries()) logits[index] = values[place]!;
  }
  return logits;
}

/** Positions up to which a pass costs no more than its fixed overhead. */
const SMALL_PASS = 512;
/** Maximum ratio of positions to tokens in larger passes. */
const MOST_PADDING = 1.15;

/** Row indices by batch, shortest first; a row that would pad the others too far starts a new batch. */
function batchesOf(rows: readonly (readonly number[])[], batchSize: number) {
  const order = [...rows.keys()].sort((one, other) => rows[one]!.length - rows[other]!.length);
  return runsOf(order, (index, batch) => {
    const { length } = rows[index]!;
    const positions = (batch.length + 1) * length;
    const tokens = batch.reduce((sum, each) => sum + rows[each]!.length, length);
    return batch.length < batchSize && positions <= Math.max(SMALL_PASS, MOST_PADDING * tokens);
  });
}

/**
 * A classifier's input ids for a text, as from Python's `tokenizer(text, truncation=True)`: the text is
 * truncated so that it fits together with the special tokens.
 *
 * If tokenizer_config.json gives no length, or one beyond the model's context length, the context length is
 * used: Python's model would fail on such a text.
 */
export function classifierRow(model: SequenceClassifier, tokenizer: Tokenizer, text: string): number[] {
  return rowOf(model, tokenizer, text).ids;
}

function rowOf(
  model: SequenceClassifier,
  tokenizer: Tokenizer,
  text: string,
): { ids: number[]; isCut: boolean } {
  const { prefixIds, suffixIds, settings } = tokenizer;
  const named = settings["model_max_length"];
  const limit = Math.min(
    typeof named === "number" && named >= 1 ? named : Infinity,
    model.config.contextLength,
  );
  const room = Math.max(0, limit - prefixIds.length - suffixIds.length);
  const ids = tokenizer.encode(text);
  const surplus = Math.max(0, ids.length - room);
  const kept =
    settings["truncation_side"] === "left" ? ids.slice(surplus) : ids.slice(0, ids.length - surplus);
  return { ids: [...prefixIds, ...kept, ...suffixIds], isCut: surplus > 0 };
}

/** Rows of ids, right-padded to [B, T] → [B, L]. */
function forward(model: SequenceClassifier, rows: readonly (readonly number[])[]): number[][] {
  const { padId } = model.config;
  const { device } = model;
  // A tokenizer without special tokens encodes an empty text as no ids, but the model needs at least one position.
  const length = Math.max(1, ...rows.map((row) => row.length));
  const shape = [rows.length, length];
  const ids = new Int32Array(rows.length * length).fill(padId);
  const mask = new Uint8Array(rows.length * length);
  for (const [index, row] of rows.entries()) {
    ids.set(row, index * length);
    mask.fill(1, index * length, index * length + row.length);
  }
  return noGrad(() =>
    scope(() => {
      const input = tensor(ids, { shape, device }).to("int64");
      return model
        .forward(input, tensor(mask, { dtype: "bool", shape, device }))
        .to("float32")
        .toArray() as number[][];
    }),
  );
}
