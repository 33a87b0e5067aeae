import { keep, ones, scope, type Tensor } from "@astra-rl/torch";
import type { Conversation, Message } from "@astra-rl/lm";
import { TokenTable } from "../../src/tree/index.js";
import { ToySystem } from "./toy-system.js";

/** An `ASTSystem` without a tester among its parts: it owns one number, which shifts every log-probability. */
export class OwningSystem extends ToySystem {
  readonly shift: Tensor = keep(ones([1])).requiresGrad_();

  override async getTesterLogprobs(
    contexts: readonly Conversation[],
    probes: readonly Message[],
  ): Promise<TokenTable> {
    const { values, lengths } = await super.getTesterLogprobs(contexts, probes);
    const isLong = probes.map((probe) => (probe.text.length > 4 ? [1] : [0.5]));
    const weights = TokenTable.ofRows(isLong).values;
    return new TokenTable(
      scope(() =>
        values
          .detach()
          .sub(this.shift.square().add(1e-3).mul(weights))
          .mul(values.detach().ne(0).to("float32")),
      ),
      lengths,
    );
  }

  override parameters(): Iterable<Tensor> {
    return [this.shift];
  }

  override dispose(): void {
    this.shift.dispose();
  }
}
