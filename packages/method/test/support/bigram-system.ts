import { keyedUniform } from "@astra-rl/base";
import { cat, keep, noGrad, scope, stack, tensor, zeros, type Tensor } from "@astra-rl/torch";
import { System } from "../../src/system/index.js";
import { TokenTable, type NodeKey } from "../../src/tree/index.js";
import type { WorkCounters } from "../../src/models/index.js";

/** The letters of the toy language; "." ends a message. */
export const LETTERS = ["a", "b", "c", "."] as const;
const START = LETTERS.length;
const LONGEST = 3;

/**
 * A language of four letters with a tester that knows only the letter before: one table of logits, [5, 4], whose last
 * row is the start of a message. Probes have one to three letters; the target is silent. The reward of a turn is the
 * number of a's in the probe minus the number of b's, so a trained tester generates "aaa".
 */
export class BigramSystem extends System<string, string> {
  /** [5, 4]: logits of the next letter after each letter, and at the start. Owned by the system. */
  readonly table: Tensor;
  readonly baseline: Tensor;
  /** Log-probabilities are multiplied by it; NaN spoils the gradient of one update for tests. */
  poison = 1;
  updates = 0;
  readonly #work = { read: 0, generated: 0 };

  constructor(dtype: "float32" | "float64" = "float32") {
    super();
    this.table = keep(zeros([LETTERS.length + 1, LETTERS.length], { dtype })).requiresGrad_();
    this.baseline = keep(zeros([LETTERS.length + 1, LETTERS.length], { dtype }));
  }

  override async rolloutPromptWithTester(
    contexts: readonly string[],
    keys: readonly NodeKey[] = [],
  ): Promise<string[]> {
    const columns = LETTERS.length;
    const probabilities = scope(() =>
      Array.from(noGrad(() => this.table.detach().softmax(-1)).toTypedArray() as ArrayLike<number>),
    );
    return contexts.map((_, row) => {
      const key = { ...(keys[row] ?? { seed: 0, episode: 0, node: row }), stream: "tester" };
      let text = "";
      let previous: number = START;
      for (let index = 0; index < LONGEST; index++) {
        let draw = keyedUniform(key, index);
        let letter = 0;
        while (letter < columns - 1 && (draw -= probabilities[previous * columns + letter]!) >= 0)
          letter += 1;
        text += LETTERS[letter]!;
        this.#work.generated += 1;
        if (LETTERS[letter] === ".") break;
        previous = letter;
      }
      return text;
    });
  }

  override async rolloutPromptWithTarget(prompts: readonly string[]): Promise<string[]> {
    return prompts.map(() => "");
  }

  override async getTesterLogprobs(
    _: readonly string[],
    continuations: readonly string[],
  ): Promise<TokenTable> {
    for (const continuation of continuations) this.#work.read += continuation.length;
    const { values, lengths } = logprobs(this.table, continuations);
    return new TokenTable(values.mul(this.poison), lengths);
  }

  override async getBaselineLogprobs(
    _: readonly string[],
    continuations: readonly string[],
  ): Promise<TokenTable> {
    return logprobs(this.baseline, continuations);
  }

  override async getTargetLogprobs(
    _: readonly string[],
    continuations: readonly string[],
  ): Promise<TokenTable> {
    return logprobs(this.baseline, continuations);
  }

  override async reward(_: readonly string[], probes: readonly string[]): Promise<number[]> {
    return probes.map(worth);
  }

  override advance(context: string, probe: string, response: string): string {
    return context + probe + response;
  }

  override promptForTarget(context: string, probe: string): string {
    return context + probe;
  }

  override parameters(): Iterable<Tensor> {
    return [this.table];
  }

  override async testerUpdated(): Promise<void> {
    this.updates += 1;
  }

  override counters(): WorkCounters {
    return { tester: this.#work };
  }

  override dispose(): void {
    this.table.dispose();
    this.baseline.dispose();
  }
}

export function worth(probe: string): number {
  return Array.from(probe).reduce((sum, letter) => sum + (letter === "a" ? 1 : letter === "b" ? -1 : 0), 0);
}

/** log P of each letter. */
function logprobs(table: Tensor, texts: readonly string[]): TokenTable {
  return scope(() => {
    const all = table.logSoftmax(-1).reshape([-1]);
    const nothing = zeros([1], { dtype: table.dtype });
    // One more entry, for the positions beyond a text's end.
    const padded = cat([all, nothing], 0);
    const rows = texts.map((text) => {
      const letters = Array.from(text).map((letter) => LETTERS.indexOf(letter as (typeof LETTERS)[number]));
      const cells = letters.map((letter, i) => (i === 0 ? START : letters[i - 1]!) * LETTERS.length + letter);
      while (cells.length < LONGEST) cells.push((LETTERS.length + 1) * LETTERS.length);
      return padded.indexSelect(0, tensor(cells, { dtype: "int64" }));
    });
    return new TokenTable(
      stack(rows, 0),
      texts.map((text) => text.length),
    );
  });
}
