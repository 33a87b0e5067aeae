import { z } from "zod";
import type { Conversation, Message } from "@astra-rl/lm";
import {
  defineKind,
  ASTSampler,
  checkTreeSize,
  treeShape,
  type ASTSamplerOptions,
  type EpisodeSeed,
  type Graph,
  type PromptOf,
  type Purpose,
  type SamplerState,
  type System,
} from "@astra-rl/method";
import { GoalDraws } from "./goal-draws.js";

/**
 * Trees that start from goals in which something is left to learn: more often from those that are reached sometimes than from
 * those that are always or never reached (`GoalDraws`). Evaluations start from their prompts, as elsewhere.
 */
export class GoalSampler<S = Conversation, A = Message> extends ASTSampler<S, A> {
  readonly #draws: GoalDraws<S>;

  /** @throws UsageError for prompts without goals, and for what `ASTSampler` refuses */
  constructor(system: System<S, A>, prompts: readonly PromptOf<S>[], given: ASTSamplerOptions<S, A> = {}) {
    super(system, prompts, given);
    this.#draws = new GoalDraws("GoalSampler", this.prompts);
  }

  override async observe(graphs: readonly Graph<S, A>[]): Promise<void> {
    this.#draws.observe(graphs);
  }

  override getState(): SamplerState {
    return { ...super.getState(), goals: this.#draws.getState() };
  }

  override setState({ goals = {}, ...state }: SamplerState): void {
    super.setState(state);
    this.#draws.setState(goals);
  }

  protected override begin(start: EpisodeSeed, purpose: Purpose = "train"): Graph<S, A> {
    if (purpose === "evaluate") return super.begin(start, purpose);
    const { seed, episode } = typeof start === "number" ? { seed: start, episode: 0 } : start;
    return this.makeGraph(this.#draws.draw(seed, episode), { seed, episode }, purpose);
  }
}

export const goalSamplerKind = defineKind({
  role: "sampler",
  name: "goals",
  summary: "Trees from goals that are reached sometimes more often than from those always or never reached",
  schema: z.strictObject(treeShape).superRefine(checkTreeSize),
  make: (chosen, { system, prompts, seed }) => new GoalSampler(system, prompts, { ...chosen, seed }),
});
