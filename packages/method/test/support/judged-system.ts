import type { Json } from "@astra-rl/base";
import type { Assessment, Graph, NodeKey } from "../../src/tree/index.js";
import { Reward, type RewardTerm, type Turn } from "../../src/reward/index.js";
import { worth } from "./bigram-system.js";
import type { TextGraph } from "./texts.js";
import { ValuedBigram } from "./valued-bigram.js";

/** What the bigram system rewards, as a term. */
export class WorthTerm implements RewardTerm {
  readonly name = "worth";
  readonly needs = [];
  score(turns: readonly Turn[]): Promise<number[]> {
    return Promise.resolve(turns.map(({ probe }) => worth(probe)));
  }
}

/** −(how often the probe occurred in earlier experiences); evaluations do not ask for it. */
export class NoveltyTerm implements RewardTerm {
  readonly name = "novelty";
  readonly needs = [];
  seen: Record<string, number> = {};
  score(turns: readonly Turn[]): Promise<number[]> {
    return Promise.resolve(
      turns.map(({ probe, key }) => (key.purpose === "evaluate" ? 0 : -(this.seen[probe] ?? 0))),
    );
  }
  async observe(graphs: readonly Graph[]): Promise<void> {
    for (const graph of graphs)
      for (const { probe } of graph.nodes()) this.seen[`${probe}`] = (this.seen[`${probe}`] ?? 0) + 1;
  }
  getState(): Json {
    return this.seen;
  }
  setState(state: Json): void {
    this.seen = { ...(state as Record<string, number>) };
  }
}

/** A bigram tester that is rewarded by terms, one of which has state; probes with an a are harmful. */
export class JudgedSystem extends ValuedBigram {
  readonly terms = new Reward([
    { term: new WorthTerm(), weight: 1 },
    { term: new NoveltyTerm(), weight: 0.05 },
  ]);

  override async assess(
    contexts: readonly string[],
    probes: readonly string[],
    responses: readonly string[],
    keys: readonly NodeKey[] = [],
  ): Promise<Assessment[]> {
    const turns = probes.map((probe, row) => ({
      context: contexts[row]!,
      probe,
      response: responses[row]!,
      key: keys[row]!,
      likelihood: null,
    }));
    const assessments = await this.terms.assess(turns);
    return assessments.map((assessment, row) => ({
      ...assessment,
      scores: { probe: probes[row]!.includes("a") ? 1 : 0, response: 0 },
    }));
  }

  override observe(graphs: readonly TextGraph[]): Promise<void> {
    // The term takes texts for messages.
    return this.terms.observe(graphs as unknown as Graph[]);
  }

  override getState(): Json {
    return this.terms.getState();
  }

  override setState(state: Json): void {
    this.terms.setState(state);
  }
}
