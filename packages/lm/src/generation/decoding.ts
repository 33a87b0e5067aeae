import type { Tensor } from "@astra-rl/torch";
import type { CausalLM } from "../causal-lm.js";
import type { ResolvedSampling } from "./sampling.js";
import type { SessionRow } from "./session-row.js";
import type { DecodeGraphs } from "./static/decode-graphs.js";
import type { FinishReason, TokenDecoder } from "./stop.js";

export interface DecodeOptions {
  model: CausalLM;
  tokenizer: TokenDecoder;
  sampling: ResolvedSampling;
  /** Ids that end a generation with reason "eos". */
  endIds: readonly number[];
  /** Removes finished rows from the batch. */
  compaction: boolean;
  /**
   * Steps between checks of the sampled tokens. Above 1, the host does not wait for the device at every token; tokens
   * that a row computes past its end are discarded.
   */
  checkInterval: number;
  /** null: each step is computed anew. */
  graphs: DecodeGraphs | null;
}

/** What one row generated. */
export interface GeneratedRow {
  ids: number[];
  text: string;
  /** Log-probability of each id under the full distribution; empty if not recorded. */
  logprobs: number[];
  /** Log-probability of each id under the distribution it was sampled from; empty if not recorded. */
  behaviour: number[];
  finished: FinishReason;
  /** How many of the ids stay in the row: all but a final end id without text. */
  kept: number;
}

/** A row that is being decoded. */
export interface Decoding {
  row: SessionRow;
  /** Columns before the generation. */
  start: number;
  /** What was sampled up to the last check; logprobs and behaviour are empty if not recorded. */
  ids: number[];
  logprobs: number[];
  behaviour: number[];
  isFinished: boolean;
}

/** Some tokens of every row being decoded, each [n, tokens]; null = not recorded. */
export interface SampledTokens {
  ids: Tensor;
  logprobs: Tensor | null;
  behaviour: Tensor | null;
}
