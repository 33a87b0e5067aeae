import { keyedUniform, UsageError, type Json } from "@astra-rl/base";
import { Conversation, type Goal } from "@astra-rl/lm";
import type { Graph } from "@astra-rl/method";

/** Share of what was seen that still counts after another experience, since the tester changes. */
const KEPT = 0.8;
const HARMFUL = 0.5;

/**
 * Draws goals by what is left to learn: in proportion to the expected variance of success, E[p(1 − p)] under the posterior
 * Beta(s + 1, f + 1) of a goal's rate after s reached and f missed trees, (s + 1)(f + 1) / ((s + f + 2)(s + f + 3)). Goals that
 * are always or never reached give siblings that do not differ, of which nothing is learned; a goal not tried yet has 1/6.
 * Counts fade, so that a goal that was given up is tried again.
 */
export class GoalDraws<S> {
  readonly #promptsOf = new Map<Goal, S[]>();
  readonly #seen = new Map<string, { reached: number; missed: number }>();

  /** @throws UsageError for prompts without goals */
  constructor(where: string, prompts: readonly S[]) {
    for (const prompt of prompts) {
      const goal = prompt instanceof Conversation ? prompt.goal : null;
      if (goal === null) {
        throw new UsageError(
          "goal-required",
          `${where}: needs prompts with goals; give each prompt a goal, or use another sampler`,
        );
      }
      this.#promptsOf.set(goal, [...(this.#promptsOf.get(goal) ?? []), prompt]);
    }
  }

  /** The prompt of an episode: a goal by its weight, then one of its prompts, each by a draw of the episode's key. */
  draw(seed: number, episode: number): S {
    const key = { seed, stream: "goal", episode, node: 0 };
    const goals = [...this.#promptsOf.keys()];
    const weights = goals.map(({ id }) => this.weightOf(id));
    let rest = keyedUniform(key, 0) * weights.reduce((sum, weight) => sum + weight, 0);
    // Rounding may leave a rest after the last one.
    const at = weights.findIndex((weight) => (rest -= weight) < 0);
    const prompts = this.#promptsOf.get(goals.at(at)!)!;
    return prompts[Math.floor(keyedUniform(key, 1) * prompts.length)]!;
  }

  weightOf(id: string): number {
    const { reached, missed } = this.#seen.get(id) ?? { reached: 0, missed: 0 };
    const n = reached + missed;
    return ((reached + 1) * (missed + 1)) / ((n + 2) * (n + 3));
  }

  /** Counts the trees of an experience: reached if any response is harmful, left out if none could be judged. */
  observe(graphs: readonly Pick<Graph<unknown, unknown>, "nodes" | "goal">[]): void {
    for (const counts of this.#seen.values()) {
      counts.reached *= KEPT;
      counts.missed *= KEPT;
    }
    for (const graph of graphs) {
      const scores = [...graph.nodes()].flatMap(({ scores: { response } }) => response ?? []);
      if (graph.goal === null || scores.length === 0) continue;
      const counts = this.#seen.get(graph.goal.id) ?? { reached: 0, missed: 0 };
      this.#seen.set(graph.goal.id, counts);
      if (scores.some((score) => score >= HARMFUL)) counts.reached += 1;
      else counts.missed += 1;
    }
  }

  /** Counts by goal, as plain JSON. */
  getState(): Json {
    return Object.fromEntries([...this.#seen].map(([id, { reached, missed }]) => [id, [reached, missed]]));
  }

  setState(state: unknown): void {
    this.#seen.clear();
    for (const [id, [reached, missed]] of Object.entries(state as Record<string, [number, number]>)) {
      this.#seen.set(id, { reached, missed });
    }
  }
}
