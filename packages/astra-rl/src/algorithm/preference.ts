import { AstraError, noGrad, scope, UsageError, type Tensor } from "@astra-rl/torch";
import {
  Algorithm,
  type Graph,
  type Node,
  type Sampler,
  type StepResult,
  type System,
} from "../core/index.js";
import { requireBeta, requireLabelSmoothing, type PreferenceLogprobs } from "./preference-margin.js";
import { PREFERENCE_DEFAULTS } from "./preference-options.js";

/** Two continuations of one context, the first of which is preferred. */
export interface PreferenceStep<S = string, A = string> {
  context: S;
  chosen: A;
  rejected: A;
  /** Where the chosen probe comes from; through it the sampled token ids travel. Absent for pairs made by hand. */
  chosenSource?: Node<S, A>;
  /** Where the rejected probe comes from. Absent for pairs made by hand. */
  rejectedSource?: Node<S, A>;
}

/** Preference steps, column by column; every array has one entry for each pair. */
export interface PreferenceBatch<S = string, A = string> {
  contexts: S[];
  chosen: A[];
  rejected: A[];
  chosenSources: (Node<S, A> | undefined)[];
  rejectedSources: (Node<S, A> | undefined)[];
}

export interface PreferenceOptions {
  beta?: number;
  labelSmoothing?: number;
  lengthNormalize?: boolean;
}

/** A loss of preference pairs: one value for each pair, [B]. */
export type PreferenceLoss = (logprobs: PreferenceLogprobs, options: PreferenceOptions) => Tensor;

/**
 * Learning from preferences between siblings: one algorithm, whatever the loss.
 *
 * **Pairs.** Among the siblings of every branch, the highest reward is chosen and the lowest rejected (the first of
 * equals). Failed nodes take no part. A group gives no pair when fewer than two siblings are left, or when all
 * rewards are equal, since then nothing is preferred; the branches below it are searched all the same.
 *
 * **Step.** Chosen and rejected are read together, 2B rows in one call to the tester and one to the baseline. The
 * loss is the mean over the pairs. What is logged is defined on the algorithm's page in docs/algorithms.
 */
export class Preference<S = string, A = string> extends Algorithm<
  S,
  A,
  PreferenceStep<S, A>,
  PreferenceBatch<S, A>
> {
  readonly options: Readonly<Required<PreferenceOptions>>;

  /** @throws UsageError when β or the label smoothing is out of range */
  constructor(
    system: System<S, A>,
    readonly name: string,
    readonly loss: PreferenceLoss,
    {
      beta = PREFERENCE_DEFAULTS.beta,
      labelSmoothing = PREFERENCE_DEFAULTS.labelSmoothing,
      lengthNormalize = PREFERENCE_DEFAULTS.lengthNormalize,
    }: PreferenceOptions = {},
  ) {
    super(system);
    requireBeta(name, beta);
    requireLabelSmoothing(name, labelSmoothing);
    this.options = { beta, labelSmoothing, lengthNormalize };
  }

  /** @throws UsageError for a sampler that grows one child a node, which leaves nothing to compare */
  override checkSampler(sampler: Sampler<S, A>): void {
    const width = (sampler as { width?: unknown }).width;
    if (typeof width === "number" && width < 2) {
      throw new UsageError(
        `${this.name}: the sampler's tree width must be at least 2, got ${width}. ${this.name} learns from the ` +
          `difference between siblings, and a single child has none: set the width to 2 or more, or choose an ` +
          `algorithm that learns from single rollouts`,
      );
    }
  }

  override flatten(graph: Graph<S, A>): PreferenceStep<S, A>[] {
    const steps: PreferenceStep<S, A>[] = [];
    for (const siblings of graph.siblings()) {
      const valid = siblings.filter((node) => !node.failed && Number.isFinite(node.reward));
      if (valid.length < 2) continue;
      const chosen = valid.reduce((best, node) => (node.reward > best.reward ? node : best));
      const rejected = valid.reduce((worst, node) => (node.reward < worst.reward ? node : worst));
      if (chosen.reward === rejected.reward) continue;
      // States that are objects may be equal without being the same; only plain values can be compared here.
      if (typeof chosen.context === "string" && chosen.context !== rejected.context) {
        throw new AstraError(
          `${this.name}.flatten: siblings must share their context, got ${JSON.stringify(chosen.context)} and ` +
            `${JSON.stringify(rejected.context)}; check the sampler that grew this graph`,
        );
      }
      steps.push({
        context: chosen.context,
        chosen: chosen.probe,
        rejected: rejected.probe,
        chosenSource: chosen,
        rejectedSource: rejected,
      });
    }
    return steps;
  }

  override collate(steps: readonly PreferenceStep<S, A>[]): PreferenceBatch<S, A> {
    return {
      contexts: steps.map((step) => step.context),
      chosen: steps.map((step) => step.chosen),
      rejected: steps.map((step) => step.rejected),
      chosenSources: steps.map((step) => step.chosenSource),
      rejectedSources: steps.map((step) => step.rejectedSource),
    };
  }

  /**
   * Mean loss of the batch, with a gradient into the tester, and the logs. The caller owns `loss`.
   *
   * @throws UsageError for a batch without pairs
   */
  override async step(batch: PreferenceBatch<S, A>): Promise<StepResult> {
    const pairs = batch.contexts.length;
    if (pairs === 0) throw new UsageError(`${this.name}.step: the batch holds no pairs`);
    const contexts = [...batch.contexts, ...batch.contexts];
    const continuations = [...batch.chosen, ...batch.rejected];
    const sources = [...batch.chosenSources, ...batch.rejectedSources];
    return scope(async () => {
      // Both [2B, T], the chosen continuations in the first B rows.
      const tester = (await this.system.getTesterLogprobsAndValidate(
        contexts,
        continuations,
        sources,
      )) as Tensor;
      const baseline = (await noGrad(() =>
        this.system.getBaselineLogprobsAndValidate(contexts, continuations, sources),
      )) as Tensor;
      const lengths = tokenCounts(tester, baseline);
      const testerSums = tester.sum([-1]);
      const baselineSums = baseline.sum([-1]).to(testerSums.dtype);
      const losses = this.loss(
        {
          chosen: testerSums.narrow(0, 0, pairs),
          rejected: testerSums.narrow(0, pairs, pairs),
          baselineChosen: baselineSums.narrow(0, 0, pairs),
          baselineRejected: baselineSums.narrow(0, pairs, pairs),
          chosenLengths: lengths.slice(0, pairs),
          rejectedLengths: lengths.slice(pairs),
        },
        this.options,
      );
      const logs = this.#logs(numbers(testerSums), numbers(baselineSums), lengths);
      return { loss: losses.mean(), logs };
    });
  }

  #logs(
    tester: readonly number[],
    baseline: readonly number[],
    lengths: readonly number[],
  ): Record<string, number> {
    const pairs = tester.length / 2;
    const { beta } = this.options;
    const ratios = tester.map((value, row) => value - baseline[row]!);
    let correct = 0;
    for (let pair = 0; pair < pairs; pair++) if (ratios[pair]! > ratios[pairs + pair]!) correct += 1;
    const chosenReward = beta * average(ratios.slice(0, pairs));
    const rejectedReward = beta * average(ratios.slice(pairs));
    const tokens = lengths.reduce((sum, length) => sum + length, 0);
    return {
      "preference/accuracy": correct / pairs,
      "preference/chosen_reward": chosenReward,
      "preference/margin": chosenReward - rejectedReward,
      "preference/rejected_reward": rejectedReward,
      "logprobs/baseline_chosen": average(baseline.slice(0, pairs)),
      "logprobs/baseline_rejected": average(baseline.slice(pairs)),
      "logprobs/chosen": average(tester.slice(0, pairs)),
      "logprobs/rejected": average(tester.slice(pairs)),
      "drift/per_token": tokens === 0 ? 0 : ratios.reduce((sum, ratio) => sum + ratio, 0) / tokens,
    };
  }
}

/**
 * Tokens of each row. Log-probabilities are 0 beyond a row's length, so the last position that is not 0 under one
 * of the models ends it; a last token that both models hold certain adds nothing to any sum and is not counted.
 */
function tokenCounts(tester: Tensor, baseline: Tensor): number[] {
  const tables = [tester, baseline].map((table) => ({
    values: table.detach().toTypedArray() as ArrayLike<number>,
    columns: table.shape[1]!,
  }));
  return Array.from({ length: tester.shape[0]! }, (_, row) =>
    Math.max(
      ...tables.map(({ values, columns }) => {
        let length = columns;
        while (length > 0 && values[row * columns + length - 1] === 0) length -= 1;
        return length;
      }),
    ),
  );
}

function numbers(vector: Tensor): number[] {
  return Array.from(vector.detach().toTypedArray() as ArrayLike<number>);
}

function average(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
