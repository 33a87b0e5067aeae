import { tensor } from "@astra-rl/torch";
import type { Conversation, Message } from "@astra-rl/lm";
import { Algorithm, type LearningRateGroup, type StepResult } from "../../src/algorithm/index.js";
import { hasValues, type System, type SystemNeed } from "../../src/system/index.js";
import type { CreditTable, Graph, Node } from "../../src/tree/index.js";

/**
 * The least that reads everything of a tester's pass: each probe's log-probability times its credit less its value, the
 * squared error of the value, and a little entropy.
 */
export class ActorCritic<S = Conversation, A = Message> extends Algorithm<
  S,
  A,
  [Node<S, A>, number],
  [Node<S, A>, number][]
> {
  override readonly needs: readonly SystemNeed[] = ["values"];

  constructor(
    system: System<S, A>,
    readonly valueLearningRate: number | null = null,
  ) {
    super(system);
  }

  override learningRates(): readonly LearningRateGroup[] {
    if (this.valueLearningRate === null || !hasValues(this.system)) return [];
    const parameters = this.system.valueParameters();
    return [{ name: "value", parameters, learningRate: this.valueLearningRate }];
  }

  override flatten(graph: Graph<S, A>, credit: CreditTable<S, A>): [Node<S, A>, number][] {
    return [...graph.nodes()].map((node) => [node, credit.get(node)!]);
  }

  override collate(steps: readonly [Node<S, A>, number][]): [Node<S, A>, number][] {
    return [...steps];
  }

  override async step(batch: [Node<S, A>, number][]): Promise<StepResult> {
    const nodes = batch.map(([node]) => node);
    const output = await this.system.checked.getTesterOutput(
      nodes.map(({ context }) => context),
      nodes.map(({ probe }) => probe),
      { values: true, entropy: true },
    );
    const { logprobs, values, entropy } = output;
    const { dtype } = logprobs.values;
    const credits = tensor(
      batch.map(([, credit]) => credit),
      { dtype },
    );
    const error = values!.means().sub(credits);
    const policy = logprobs.sums().mul(error.detach());
    const loss = policy.add(error.square()).mean();
    return {
      loss: entropy === undefined ? loss : loss.sub(entropy.means().mean().mul(0.01)),
      logs: { "test/value_error": error.square().mean().item() },
    };
  }
}
