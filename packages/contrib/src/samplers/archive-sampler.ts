import { keyedUniform, parseOptions } from "@astra-rl/base";
import { z } from "zod";
import {
  defineKind,
  ASTSampler,
  checkTreeSize,
  samplerShape,
  treeShape,
  type EpisodeSeed,
  type Graph,
  type Purpose,
  type SamplerState,
  type PromptOf,
  type System,
  type ASTSamplerOptions,
} from "@astra-rl/method";
import type { Message, Conversation } from "@astra-rl/lm";
import { Archive, type Opening } from "./archive.js";

const options = z
  .strictObject({
    ...treeShape,
    replay: z
      .number()
      .min(0)
      .max(1)
      .default(0.5)
      .describe("Share of the training episodes that start from an archived opening"),
    capacity: z
      .int()
      .min(1)
      .default(100)
      .describe("Number of openings to keep: those with the highest rewards"),
    minReward: z.number().optional().describe("Minimum reward of an opening to keep. Default: none"),
  })
  .superRefine(checkTreeSize);
const codeOptions = z.strictObject({ ...options.shape, ...samplerShape });

export type ArchiveSamplerOptions<S = Conversation, A = Message> = ASTSamplerOptions<S, A> &
  Pick<z.input<typeof codeOptions>, "replay" | "capacity" | "minReward">;

/**
 * Trees, some of which start from an archived state, as in Go-Explore (Ecoffet et al., arXiv 1901.10995): a state in
 * which the best turn of an earlier graph was found. The episode's draws decide whether and where; the archive depends
 * only on earlier experiences, so a resumed run matches an uninterrupted one.
 *
 * An opening has fewer turns than a tree's depth, so conversations stay below twice the depth. States must be JSON.
 * Evaluations start from prompts.
 */
export class ArchiveSampler<S = Conversation, A = Message> extends ASTSampler<S, A> {
  readonly replay: number;
  readonly #archive: Archive<S>;

  /** @throws UsageError for a share outside of 0 to 1, or a capacity below 1; see also ASTSampler */
  constructor(
    system: System<S, A>,
    prompts: readonly PromptOf<S>[],
    given: ArchiveSamplerOptions<S, A> = {},
  ) {
    const { replay, capacity, minReward, ...rest } = parseOptions("ArchiveSampler", codeOptions, given);
    super(system, prompts, rest as ASTSamplerOptions<S, A>);
    this.replay = replay;
    this.#archive = new Archive({ capacity, minReward: minReward ?? -Infinity, longest: this.depth });
  }

  /** The openings that episodes may start from, best first. */
  get openings(): readonly Opening<S>[] {
    return this.#archive.openings;
  }

  override async observe(graphs: readonly Graph<S, A>[]): Promise<void> {
    this.#archive.add(graphs);
  }

  override getState(): SamplerState {
    return { ...super.getState(), archive: this.#archive.getState() };
  }

  override setState({ archive = [], ...state }: SamplerState): void {
    super.setState(state);
    this.#archive.setState(archive);
  }

  protected override begin(start: EpisodeSeed, purpose: Purpose = "train"): Graph<S, A> {
    const graph = super.begin(start, purpose);
    const { openings } = this.#archive;
    if (purpose === "evaluate" || openings.length === 0) return graph;
    const { seed, episode } = graph;
    const draw = (index: number) => keyedUniform({ seed, stream: "replay", episode, node: 0 }, index);
    if (draw(0) >= this.replay) return graph;
    const { context } = openings[Math.floor(draw(1) * openings.length)]!;
    return this.makeGraph(this.system.stateOf(context as PromptOf<S>), { seed, episode }, purpose);
  }
}

export const archiveSamplerKind = defineKind({
  role: "sampler",
  name: "archive",
  summary: "Trees, some of which start from states in which high rewards were found",
  schema: options,
  make: (chosen, { system, prompts, seed }) => new ArchiveSampler(system, prompts, { ...chosen, seed }),
});
