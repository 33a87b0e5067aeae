import { LocalModel, type Conversation, type LocalModelOptions, type Message } from "@astra-rl/lm";
import { isGradEnabled, type Device, type Tensor } from "@astra-rl/torch";
import type { Tester, TesterOutput, TesterWants } from "../core/index.js";
import { noValueHead, testerOutput } from "./tester-output.js";
import type { TesterWeights } from "./tester-weights.js";
import type { ValueHead } from "./value-head.js";

export interface LocalTesterOptions extends Omit<
  LocalModelOptions,
  "role" | "model" | "version" | "tokenizer"
> {
  /**
   * Updates keep only what lies between layers and compute the layers twice: less memory, a third more work, the same
   * gradients. On the CPU only. Default false.
   */
  gradientCheckpointing?: boolean;
  /** Tells values, and is trained and saved with the weights. It stays the caller's. Default: none. */
  valueHead?: ValueHead;
}

/** A tester of this process whose weights are trained. */
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
      version: () => weights.version,
    });
    this.weights = weights;
    this.valueHead = valueHead ?? null;
    this.#gradientCheckpointing = gradientCheckpointing;
  }

  get device(): Device {
    return this.weights.model.device;
  }

  get tellsValues(): boolean {
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
    if (values && valueHead === null) throw noValueHead(this.name);
    const rows = conversations.map((conversation, row) => this.row(conversation, messages[row]!));
    const options = {
      gradientCheckpointing: this.#gradientCheckpointing,
      entropy,
      ...(values ? { head: (states: Tensor) => valueHead!.read(states) } : {}),
    };
    const read = () => testerOutput(this.train(weights.model, rows, options), rows);
    // Without gradients nothing is trained: what an adapter does in training alone (dropout) stays out.
    return isGradEnabled() ? weights.training(read) : read();
  }

  async save(folder: string): Promise<void> {
    await this.weights.save(folder);
    this.valueHead?.save(folder);
  }

  async restore(source: string): Promise<void> {
    // What is missing there is found before anything is changed.
    this.valueHead?.restore(source);
    await this.weights.restore(source);
  }
}
