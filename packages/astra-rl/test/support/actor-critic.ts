import { tensor } from "@astra-rl/torch";
import {
  Algorithm,
  hasValues,
  type CreditTable,
  type LearningRateGroup,
  type StepResult,
  type SystemNeed,
} from "../../src/core/index.js";
import type { TextGraph, TextNode, TextSystem } from "./texts.js";

/**
 * The least that reads everything of a tester's pass: each probe's log-probability times its credit less its value, the
 * squared error of the value, and a little entropy.
 */
export class ActorCritic extends Algorithm<string, string, [TextNode, number], [TextNode, number][]> {
  override readonly needs: readonly SystemNeed[] = ["values"];

  constructor(
    system: TextSystem,
    readonly valueLearningRate: number | null = null,
  ) {
    super(system);
  }

  override learningRates(): readonly LearningRateGroup[] {
    if (this.valueLearningRate === null || !hasValues(this.system)) return [];
    const parameters = this.system.valueParameters();
    return [{ name: "value", parameters, learningRate: this.valueLearningRate }];
  }

  override flatten(graph: TextGraph, credit: CreditTable<string, string>): [TextNode, number][] {
    return [...graph.nodes()].map((node) => [node, credit.get(node)!]);
  }

  override collate(steps: readonly [TextNode, number][]): [TextNode, number][] {
    return [...steps];
  }

  override async step(batch: [TextNode, number][]): Promise<StepResult> {
    const nodes = batch.map(([node]) => node);
    const output = await this.system.getTesterOutputAndValidate(
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
