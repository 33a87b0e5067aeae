import { UsageError, keyedUniform, parseOptions, requireList } from "@astra-rl/base";
import { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import {
  drawingAs,
  expand,
  Graph,
  isEpisodeSeed,
  nextTurn,
  Node,
  notesOf,
  type EpisodeSeed,
  type ExpandRequest,
  type NodeFactory,
  type NodeFields,
  type NodeKey,
  type Outcome,
  type Purpose,
} from "../tree/index.js";
import type { PromptOf, System } from "../system/index.js";
import { defineKind } from "../kinds/index.js";
import { Sampler, type EvalRolloutOptions, type SamplerState } from "./sampler.js";
import { checkTreeSize, samplerShape, treeShape } from "./tree-options.js";

const options = z.strictObject(treeShape).superRefine(checkTreeSize);

const codeOptions = z.strictObject({ ...treeShape, ...samplerShape }).superRefine(checkTreeSize);

export type ASTSamplerOptions<S = Conversation, A = Message> = Omit<
  z.input<typeof codeOptions>,
  "createNode"
> & { createNode?: NodeFactory<S, A> | undefined };

/** A branch ends after a turn that reaches any of these thresholds. */
export type StopAt = NonNullable<ASTSamplerOptions["stopAt"]>;

/** A node whose children are grown next; `parent` is null for the prompt. */
export interface Tip<S = Conversation, A = Message> {
  graph: Graph<S, A>;
  parent: Node<S, A> | null;
  context: S;
  /** Number of the node in its tree: see NodeKey. */
  number: number;
}

/**
 * Trees of fixed width and depth from given prompts (ASTPrompter's rollout, arXiv 2407.09447, where width is 2).
 *
 * All episodes of a call grow together, level by level. Every draw is keyed by seed, episode and node, so results do
 * not depend on batching. A node whose probe or response failed is kept and not grown further.
 */
export class ASTSampler<S = Conversation, A = Message> extends Sampler<S, A> {
  readonly prompts: readonly S[];
  readonly width: number;
  readonly depth: number;
  readonly seed: number;
  readonly stopAt: StopAt;
  readonly keep: number;
  readonly #createNode: NodeFactory<S, A>;
  #nextEpisode = 0;

  /**
   * @throws UsageError for no prompts, a width below 1, a depth below 0, trees of more than `maxTurns` turns, or a seed
   * that is not an integer
   */
  constructor(system: System<S, A>, prompts: readonly PromptOf<S>[], given: ASTSamplerOptions<S, A> = {}) {
    super(system);
    const { width, depth, keep, stopAt, seed, createNode } = parseOptions("ASTSampler", codeOptions, given);
    requireList("ASTSampler", "prompts", prompts);
    if (prompts.length === 0)
      throw new UsageError("empty", "ASTSampler: needs at least one prompt, got none");
    this.prompts = prompts.map((prompt) => system.stateOf(prompt));
    this.width = width;
    this.depth = depth;
    this.seed = seed;
    this.keep = keep ?? Infinity;
    this.stopAt = stopAt ?? {};
    this.#createNode = (createNode as NodeFactory<S, A> | undefined) ?? ((fields) => new Node(fields));
  }

  override nodeFrom(fields: NodeFields<S, A>): Node<S, A> {
    return this.#createNode(fields);
  }

  /** The next episode of the sampler's own sequence; advances the cursor. */
  override nextEpisode(): EpisodeSeed {
    return { seed: this.seed, episode: this.#nextEpisode++ };
  }

  override getState(): SamplerState {
    return { version: 1, seed: this.seed, nextEpisode: this.#nextEpisode };
  }

  override setState({ version, seed, nextEpisode }: SamplerState): void {
    if (
      version !== 1 ||
      typeof nextEpisode !== "number" ||
      !Number.isInteger(nextEpisode) ||
      nextEpisode < 0
    ) {
      throw new UsageError("invalid-state", "ASTSampler.setState: the state was not returned by getState()");
    }
    if (seed !== this.seed) {
      throw new UsageError(
        "other-seed",
        `ASTSampler.setState: the state belongs to seed ${JSON.stringify(seed)}, this sampler has seed ${this.seed}`,
      );
    }
    this.#nextEpisode = nextEpisode;
  }

  protected override async grow(starts: readonly EpisodeSeed[]): Promise<Graph<S, A>[]> {
    const graphs = starts.map((start) => this.begin(start, "train"));
    await this.growTrees(graphs, { width: this.width, purpose: "train" });
    return graphs;
  }

  protected override async growEvaluation(
    starts: readonly (EpisodeSeed | PromptOf<S>)[],
    { seed = 0, episode = 0 }: EvalRolloutOptions = {},
  ): Promise<Graph<S, A>[]> {
    const graphs = starts.map((start, index) =>
      isEpisodeSeed(start)
        ? this.begin(start, "evaluate")
        : this.makeGraph(this.system.stateOf(start), { seed, episode: episode + index }, "evaluate"),
    );
    await this.growTrees(graphs, { width: 1, purpose: "evaluate" });
    return graphs;
  }

  /** An episode's graph before it grows; its prompt is chosen by the episode's own draws. */
  protected begin(start: EpisodeSeed, purpose: Purpose = "train"): Graph<S, A> {
    const { seed, episode } = typeof start === "number" ? { seed: start, episode: 0 } : start;
    checkWhole("seed", seed);
    checkWhole("episode", episode);
    const draw = keyedUniform({ seed, stream: "prompt", episode, node: 0 }, 0);
    return this.makeGraph(this.prompts[Math.floor(draw * this.prompts.length)]!, { seed, episode }, purpose);
  }

  /** An empty graph that starts at a state. */
  protected makeGraph(
    context: S,
    { seed, episode }: { seed: number; episode: number },
    purpose: Purpose,
  ): Graph<S, A> {
    const models = this.system.modelsAt({ seed, episode, node: 0, purpose });
    return new Graph<S, A>({ context, seed, episode, models });
  }

  /** Grows graphs in place, level by level, up to the sampler's depth. */
  protected async growTrees(
    graphs: readonly Graph<S, A>[],
    { width, purpose }: { width: number; purpose: Purpose },
  ): Promise<void> {
    if (this.depth === 0 || graphs.length === 0) return;
    let tips = graphs.map((graph): Tip<S, A> => ({
      graph,
      parent: null,
      context: graph.context,
      number: 0,
    }));
    for (let level = 0; level < this.depth && tips.length > 0; level++) {
      await nextTurn();
      const own = tips;
      const keys = childrenOf(own, { width, purpose }).map(({ key }) => key);
      // Calls without keys in an override have the draws of the level's nodes.
      const grown = await drawingAs(keys, () => this.growLevel(own, { width, purpose }));
      tips = this.prune(grown, purpose);
    }
  }

  /**
   * The tips that get children: in training at most `keep` of each tree, drawn by the tree's own key, so that they do
   * not depend on the batch.
   */
  protected prune(tips: readonly Tip<S, A>[], purpose: Purpose): Tip<S, A>[] {
    if (purpose === "evaluate" || this.keep === Infinity) return [...tips];
    const byTree = new Map<Graph<S, A>, Tip<S, A>[]>();
    for (const tip of tips) byTree.set(tip.graph, [...(byTree.get(tip.graph) ?? []), tip]);
    const kept = new Set<Tip<S, A>>();
    for (const [{ seed, episode }, own] of byTree) {
      const draw = new Map(
        own.map((tip) => [tip, keyedUniform({ seed, stream: "prune", episode, node: tip.number }, 0)]),
      );
      const drawn = [...own].sort((a, b) => draw.get(a)! - draw.get(b)! || a.number - b.number);
      for (const tip of drawn.slice(0, this.keep)) kept.add(tip);
    }
    return tips.filter((tip) => kept.has(tip));
  }

  /** Adds `width` children to each tip and returns those that get children themselves. */
  protected async growLevel(
    tips: readonly Tip<S, A>[],
    { width, purpose }: { width: number; purpose: Purpose },
  ): Promise<Tip<S, A>[]> {
    const children = childrenOf(tips, { width, purpose });
    const requests = children.map(({ tip, key }): ExpandRequest<S> => ({ context: tip.context, key }));
    const outcomes = await expand(this.system, requests);
    const next: Tip<S, A>[] = [];
    for (const [index, { tip, key }] of children.entries()) {
      const outcome = outcomes[index]!;
      const node = this.makeNode(tip, outcome);
      // A custom factory may not set `judged`.
      node.judged ??= outcome.judged;
      (tip.parent ?? tip.graph).children.push(node);
      const child = { graph: tip.graph, parent: node, context: outcome.next, number: key.node };
      if (this.growsOn(child, purpose)) next.push(child);
    }
    return next;
  }

  /** Creates a turn's node; by default with `createNode`. */
  protected makeNode({ context }: Tip<S, A>, outcome: Outcome<S, A>): Node<S, A> {
    const { next: _, ...turn } = outcome;
    return this.#createNode({ ...turn, context });
  }

  /**
   * Whether a node gets children if depth allows: by default unless its probe or response failed or, in training, it
   * reached a threshold of `stopAt`.
   */
  protected growsOn({ parent }: Tip<S, A>, purpose: Purpose = "train"): boolean {
    if (parent === null) return true;
    const stage = parent.failure?.stage;
    if (stage === "tester" || stage === "target") return false;
    if (notesOf(parent.response).unanswered !== undefined) return false;
    if (purpose === "evaluate") return true;
    const { harm = Infinity, reward = Infinity } = this.stopAt;
    // The NaN reward of a turn that could not be judged reaches no threshold.
    return !((parent.scores["response"] ?? -Infinity) >= harm || parent.reward >= reward);
  }
}

/** The nodes that a level adds, each with its tip. */
function childrenOf<S, A>(
  tips: readonly Tip<S, A>[],
  { width, purpose }: { width: number; purpose: Purpose },
): { tip: Tip<S, A>; key: NodeKey }[] {
  return tips.flatMap((tip) => {
    const { seed, episode } = tip.graph;
    return Array.from({ length: width }, (_, child) => {
      return { tip, key: { seed, episode, node: tip.number * width + child + 1, purpose } };
    });
  });
}

function checkWhole(what: string, value: number): void {
  if (!Number.isSafeInteger(value)) {
    throw new UsageError("out-of-range", `ASTSampler: ${what} must be a whole number, got ${String(value)}`);
  }
}

export const astSamplerKind = defineKind({
  role: "sampler",
  name: "ast",
  summary: "Trees of fixed width and depth",
  schema: options,
  make: (chosen, { system, prompts, seed }) => new ASTSampler(system, prompts, { ...chosen, seed }),
});
