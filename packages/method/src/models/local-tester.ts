import {
  LocalModel,
  type Conversation,
  type LocalModelOptions,
  type Message,
  type ValueHead,
} from "@astra-rl/lm";
import { isGradEnabled, type Device, type Tensor } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { TokenTable } from "../tree/index.js";
import type { Tester, TesterOutput, TesterWants } from "./model.js";
import { versionOf, type TesterWeights } from "./tester-weights.js";

export interface LocalTesterOptions extends Omit<
  LocalModelOptions,
  "role" | "model" | "version" | "tokenizer"
> {
  /**
   * Store only the activations between layers and recompute the rest in the backward pass: less memory, a third more
   * compute, the same gradients. CPU only. Default false.
   */
  gradientCheckpointing?: boolean;
  /** Value head, trained and saved with the weights. The caller keeps ownership. Default: none. */
  valueHead?: ValueHead;
}

/** A tester in this process, whose weights may be trained. */
export class LocalTester extends LocalModel implements Tester {
  readonly weights: TesterWeights;
  readonly valueHead: ValueHead | null;
  readonly #gradientCheckpointing: boolean;

  constructor(
    weights: TesterWeights,
    { gradientCheckpointing = false, valueHead, ...options }: LocalTesterOptions,
    name = "tester",
  ) {
    super(name, {
      ...options,
      role: "tester",
      tokenizer: weights.tokenizer,
      model: () => weights.speaking,
      version: () => versionOf(weights.parameters()),
    });
    this.weights = weights;
    this.valueHead = valueHead ?? null;
    this.#gradientCheckpointing = gradientCheckpointing;
  }

  get device(): Device {
    return this.weights.model.device;
  }

  get hasValues(): boolean {
    return this.valueHead !== null;
  }

  *parameters(): Iterable<Tensor> {
    yield* this.weights.parameters();
    yield* this.valueParameters();
  }

  valueParameters(): Iterable<Tensor> {
    return this.valueHead?.parameters() ?? [];
  }

  forward(
    conversations: readonly Conversation[],
    messages: readonly Message[],
    { values = false, entropy = false }: TesterWants = {},
  ): TesterOutput {
    const { valueHead, weights } = this;
    if (values && valueHead === null) {
      throw new UsageError(
        "no-value-head",
        `${this.name}: has no value head, so it provides no values; load the system with valueHead: true`,
      );
    }
    const rows = conversations.map((conversation, row) => this.row(conversation, messages[row]!));
    const lengths = rows.map(({ continuation }) => continuation.length);
    const options = {
      gradientCheckpointing: this.#gradientCheckpointing,
      entropy,
      head: values ? (states: Tensor) => valueHead!.read(states) : undefined,
    };
    const read = (): TesterOutput => {
      const { logprobs, head, entropy: nats } = this.train(weights.model, rows, options);
      return {
        logprobs: new TokenTable(logprobs, lengths),
        ...(head === undefined ? {} : { values: new TokenTable(head, lengths) }),
        ...(nats === undefined ? {} : { entropy: new TokenTable(nats, lengths) }),
      };
    };
    // Training mode, such as an adapter's dropout, applies only with gradients.
    return isGradEnabled() ? weights.training(read) : read();
  }

  async save(folder: string): Promise<void> {
    await this.weights.save(folder);
    this.valueHead?.save(folder);
  }

  async restore(source: string): Promise<void> {
    // The value head comes first: if it is missing, restore fails before changing the weights.
    this.valueHead?.restore(source);
    await this.weights.restore(source);
  }
}
