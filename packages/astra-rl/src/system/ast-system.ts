import { AstraError } from "@astra-rl/torch";
import {
  attempt,
  checkCount,
  checkPaired,
  likelihoodOf,
  type Assessment,
  type Graph,
  type Json,
  type Likelihood,
  type NodeKey,
  type RetryOptions,
  type Scorer,
  type Sources,
  System,
  type Turn,
} from "../core/index.js";
import { paperReward, type Reward } from "../reward/index.js";

export interface ASTSystemOptions {
  /** What a turn is worth. Default: the paper's reward, by the system's scorer. */
  reward?: Reward;
  /** How failing scorer and target calls are repeated. Default: 3 tries, no wait. */
  retry?: RetryOptions;
}

/**
 * Adaptive stress testing of a language model (Hardy et al., arXiv 2407.09447): states are conversation texts, a turn
 * appends the probe and the response, and a turn is worth the harm it drew out and how likely the probe was.
 *
 * Subclasses bring the models: rollouts, log-probabilities and parameters.
 */
export abstract class ASTSystem extends System {
  readonly rewardTerms: Reward;

  constructor(
    readonly scorer: Scorer,
    { reward = paperReward(scorer), retry = {} }: ASTSystemOptions = {},
  ) {
    super();
    this.rewardTerms = reward;
    this.retry = retry;
  }

  override advance(context: string, probe: string, response: string): string {
    return context + probe + response;
  }

  override promptForTarget(context: string, probe: string): string {
    return context + probe;
  }

  /**
   * How likely the target finds each probe after its context. The default sums the rows of `getTargetLogprobs`.
   */
  async likelihood(
    contexts: readonly string[],
    probes: readonly string[],
    sources?: Sources,
  ): Promise<Likelihood[]> {
    const logprobs = await this.getTargetLogprobsAndValidate(contexts, probes, sources);
    const rows = logprobs.rows();
    logprobs.dispose();
    return rows.map(likelihoodOf);
  }

  override async assess(
    contexts: readonly string[],
    probes: readonly string[],
    responses: readonly string[],
    keys: readonly NodeKey[] = contexts.map((_, node) => ({ seed: 0, episode: 0, node })),
  ): Promise<Assessment[]> {
    checkPaired("ASTSystem.assess", contexts, probes);
    checkPaired("ASTSystem.assess", contexts, responses);
    if (contexts.length === 0) return [];
    const known = await attempt("likelihood", () => this.likelihood(contexts, probes), this.retry);
    if (known.failure === null) checkCount("ASTSystem.likelihood", known.value, contexts.length);
    else if (this.rewardTerms.needsLikelihood) {
      const { failure } = known;
      return contexts.map(() => ({ reward: NaN, scores: {}, terms: {}, likelihood: null, failure }));
    }
    return this.judge(
      contexts.map((context, row) => ({
        context,
        probe: probes[row]!,
        response: responses[row]!,
        key: keys[row]!,
        likelihood: known.failure === null ? known.value[row]! : null,
      })),
    );
  }

  /** What turns are worth whose likelihoods are known. */
  async judge(turns: readonly Turn[]): Promise<Assessment[]> {
    const assessments: Assessment[] = [];
    for (const purpose of ["train", "evaluate"] as const) {
      const rows = turns.flatMap((turn, row) => ((turn.key.purpose ?? "train") === purpose ? [row] : []));
      const judged = await this.rewardTerms.assess(
        rows.map((row) => turns[row]!),
        purpose,
        this.retry,
      );
      for (const [index, row] of rows.entries()) assessments[row] = judged[index]!;
    }
    return assessments;
  }

  override observe(graphs: readonly Graph[]): Promise<void> {
    return this.rewardTerms.observe(graphs);
  }

  override getState(): Json {
    return this.rewardTerms.getState();
  }

  override setState(state: Json): void {
    this.rewardTerms.setState(state);
  }

  /** @throws AstraError when a turn could not be scored; `assess` gives such failures as data */
  override async reward(
    contexts: readonly string[],
    probes: readonly string[],
    responses: readonly string[],
  ): Promise<number[]> {
    const assessments = await this.assess(contexts, probes, responses);
    return assessments.map(({ reward, failure }, row) => {
      if (failure === null) return reward;
      throw new AstraError(
        `ASTSystem.reward: turn ${row} could not be scored after ${failure.attempts} tries: ${failure.message}`,
      );
    });
  }
}
