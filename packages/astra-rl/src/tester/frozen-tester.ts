import { LocalModel, type Conversation, type Message } from "@astra-rl/lm";
import { noGrad, UsageError, type Device, type Tensor } from "@astra-rl/torch";
import type { Tester, TesterOutput, TesterWants } from "../core/index.js";
import { noValueHead, testerOutput } from "./tester-output.js";

/** A tester that is only evaluated: one set of weights, without gradients, nothing to train. */
export class FrozenTester extends LocalModel implements Tester {
  readonly tellsValues = false;

  get device(): Device {
    return this.model.device;
  }

  parameters(): Iterable<Tensor> {
    return [];
  }

  valueParameters(): Iterable<Tensor> {
    return [];
  }

  /** Without a gradient: `getTesterLogprobsAndValidate`, which training uses, refuses it. */
  forward(
    conversations: readonly Conversation[],
    messages: readonly Message[],
    { values = false, entropy = false }: TesterWants = {},
  ): TesterOutput {
    if (values) throw noValueHead(this.name);
    const rows = conversations.map((conversation, row) => this.row(conversation, messages[row]!));
    return noGrad(() => testerOutput(this.train(this.model, rows, { entropy }), rows));
  }

  save(): Promise<void> {
    return Promise.reject(new UsageError(`${this.name}: nothing was trained, so there is nothing to save`));
  }

  restore(): Promise<void> {
    return Promise.reject(
      new UsageError(`${this.name}: is only evaluated; load the system with the weights that are wanted`),
    );
  }
}
