import { cat, keep, scope, stack, tensor, zeros, type Tensor } from "@astra-rl/torch";
import { TokenTable } from "../../src/tree/index.js";
import type { TesterOutput, TesterWants } from "../../src/models/index.js";
import { BigramSystem, LETTERS } from "./bigram-system.js";

/** A bigram tester with a critic that knows the letter before, and that can tell its entropy. */
export class ValuedBigram extends BigramSystem {
  /** [5]: value of choosing the next letter after each letter, and at the start. Owned by the system. */
  readonly critic: Tensor;

  constructor(dtype: "float32" | "float64" = "float32") {
    super(dtype);
    this.critic = keep(zeros([LETTERS.length + 1], { dtype })).requiresGrad_();
  }

  async value(_: readonly string[], continuations: readonly string[]): Promise<TokenTable> {
    return scope(() => byState(this.critic, continuations));
  }

  override async getTesterOutput(
    contexts: readonly string[],
    continuations: readonly string[],
    want: TesterWants = {},
  ): Promise<TesterOutput> {
    const output = await super.getTesterOutput(contexts, continuations, want);
    if (want.entropy !== true) return output;
    const entropy = scope(() => {
      const logprobs = this.table.logSoftmax(-1);
      return byState(logprobs.exp().mul(logprobs).sum([-1]).neg(), continuations);
    });
    return { ...output, entropy };
  }

  override parameters(): Iterable<Tensor> {
    return [this.table, this.critic];
  }

  override valueParameters(): Iterable<Tensor> {
    return [this.critic];
  }

  override dispose(): void {
    super.dispose();
    this.critic.dispose();
  }
}

/** What each state, [5], says of the letters that are chosen in it. */
function byState(states: Tensor, texts: readonly string[]): TokenTable {
  const longest = Math.max(0, ...texts.map((text) => text.length));
  // One more entry, for the positions beyond a text's end.
  const padded = cat([states, zeros([1], { dtype: states.dtype })], 0);
  const rows = texts.map((text) => {
    const cells = Array.from({ length: longest }, (_, at) => {
      if (at >= text.length) return LETTERS.length + 1;
      return at === 0 ? LETTERS.length : LETTERS.indexOf(text[at - 1] as (typeof LETTERS)[number]);
    });
    return padded.indexSelect(0, tensor(cells, { dtype: "int64" }));
  });
  return new TokenTable(
    stack(rows, 0),
    texts.map((text) => text.length),
  );
}
