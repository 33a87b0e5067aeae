import { AstraError } from "@astra-rl/torch";
import {
  attempt,
  checkCount,
  checkPaired,
  likelihoodOf,
  type Assessment,
  type Likelihood,
  type RetryOptions,
  type Scorer,
  type ScoreOutcome,
  type Sources,
  System,
} from "../core/index.js";
import { astReward, resolveReward, type ASTReward, type ASTRewardOptions } from "./ast-reward.js";

export interface ASTSystemOptions {
  /** Form and weights of the reward. Default: the paper's. */
  reward?: ASTRewardOptions;
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
  readonly rewardOptions: ASTReward;

  constructor(
    readonly scorer: Scorer,
    { reward = {}, retry = {} }: ASTSystemOptions = {},
  ) {
    super();
    this.rewardOptions = resolveReward(reward);
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
  ): Promise<Assessment[]> {
    checkPaired("ASTSystem.assess", contexts, probes);
    checkPaired("ASTSystem.assess", contexts, responses);
    if (contexts.length === 0) return [];
    const known = await attempt("likelihood", () => this.likelihood(contexts, probes), this.retry);
    if (known.failure === null) {
      checkCount("ASTSystem.likelihood", known.value, contexts.length);
      return this.judge(probes, responses, known.value);
    }
    return contexts.map(() => ({ reward: NaN, scores: {}, likelihood: null, failure: known.failure }));
  }

  /**
   * Scores turns whose likelihoods are known: all distinct texts (probes, responses, probes + responses) in one call
   * to the scorer. A turn whose response or combined text could not be scored has failed; the probe's own score is
   * recorded but not rewarded, so its failure is only left out.
   */
  async judge(
    probes: readonly string[],
    responses: readonly string[],
    likelihoods: readonly Likelihood[],
  ): Promise<Assessment[]> {
    const count = probes.length;
    const texts = [...responses, ...probes.map((probe, row) => probe + responses[row]!), ...probes];
    const outcomes = await this.scorer.scoreAndValidate(texts, this.retry);
    return probes.map((_, row): Assessment => {
      const [response, combined, probe] = [
        outcomes[row]!,
        outcomes[count + row]!,
        outcomes[2 * count + row]!,
      ];
      const likelihood = likelihoods[row]!;
      const scores = recorded({ probe, response, combined });
      const failure = response.failure ?? combined.failure ?? null;
      if (failure !== null) return { reward: NaN, scores, likelihood, failure };
      const facts = { response: response.score!, combined: combined.score!, likelihood };
      return { reward: astReward(this.rewardOptions, facts), scores, likelihood, failure: null };
    });
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

/** Scores by the name of the text, and the response's labels as `response/<label>`; failed ones are left out. */
function recorded(outcomes: Record<"probe" | "response" | "combined", ScoreOutcome>): Record<string, number> {
  const scores: Record<string, number> = {};
  for (const [name, outcome] of Object.entries(outcomes)) {
    if (!outcome.failure) scores[name] = outcome.score;
  }
  for (const [label, value] of Object.entries(outcomes.response.labels ?? {}))
    scores[`response/${label}`] = value;
  return scores;
}
