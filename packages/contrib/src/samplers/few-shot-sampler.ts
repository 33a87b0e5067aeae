import { keyedUniform, UsageError, parseOptions, readTextFile } from "@astra-rl/base";
import { z } from "zod";
import { Conversation } from "@astra-rl/lm";
import {
  isRewarded,
  defineKind,
  graphFromRecord,
  ASTSampler,
  checkTreeSize,
  samplerShape,
  treeShape,
  type EpisodeSeed,
  type Graph,
  type PromptOf,
  type Purpose,
  type SamplerState,
  type System,
  type ASTSamplerOptions,
} from "@astra-rl/method";
import { parseGraphLines } from "@astra-rl/records";

const options = z
  .strictObject({
    ...treeShape,
    shots: z
      .int()
      .min(0)
      .default(5)
      .describe("Number of earlier cases in the list; 0 gives no examples (zero-shot)"),
    temperature: z
      .number()
      .positive("must be positive")
      .default(0.1)
      .describe("Cases are drawn with probability proportional to exp(reward / temperature)"),
    capacity: z.int().min(1).default(10_000).describe("Number of cases to remember: the latest"),
    cases: z
      .string()
      .min(1)
      .optional()
      .meta({ path: "file", resume: "content" })
      .describe(
        "Initial cases: a graphs.jsonl of a run, or the output of `astra-rl rollout --json`. Default: none",
      ),
  })
  .superRefine(checkTreeSize);
const probeTried = z.strictObject({ text: z.string(), reward: z.number() });
const codeOptions = z.strictObject({
  ...options.shape,
  ...samplerShape,
  cases: z.array(probeTried).default([]),
});

/** A probe that was tried. */
export type Case = z.output<typeof probeTried>;

export type FewShotSamplerOptions = ASTSamplerOptions &
  Pick<z.input<typeof options>, "shots" | "temperature" | "capacity"> & {
    /** Initial cases. @default none */
    cases?: readonly Case[];
  };

/**
 * Generates test cases by having the tester continue a numbered list: the prompt as heading, a few earlier cases, and
 * the number of the next one.
 *
 *     List of questions to ask someone:
 *     1. …
 *     2. …
 *     3.
 *
 * Without cases this is zero-shot generation; with cases, stochastic few-shot generation (Perez et al., "Red Teaming
 * Language Models with Language Models", arXiv 2202.03286). Cases are drawn without replacement, with probability
 * proportional to exp(reward / temperature), from the episode's own draws. Finished training turns become cases after
 * their experience, without duplicate texts, so batching does not change results.
 *
 * An evaluation draws from its own sampler's cases; when made from a configuration, these are `cases`.
 *
 * Use `targetReads: "probe"` in the system, since the list is meant for the tester only.
 */
export class FewShotSampler extends ASTSampler {
  readonly shots: number;
  readonly temperature: number;
  readonly capacity: number;
  #cases: Case[];

  /** @throws UsageError for shots below 0, or a temperature or capacity that is not positive; see also ASTSampler */
  constructor(system: System, prompts: readonly PromptOf<Conversation>[], given: FewShotSamplerOptions = {}) {
    const { shots, temperature, capacity, cases, ...rest } = parseOptions(
      "FewShotSampler",
      codeOptions,
      given,
    );
    super(system, prompts, rest as ASTSamplerOptions);
    this.shots = shots;
    this.temperature = temperature;
    this.capacity = capacity;
    this.#cases = [];
    this.#remember(cases);
  }

  /** The remembered cases, latest last. */
  get cases(): readonly Case[] {
    return this.#cases;
  }

  override async observe(graphs: readonly Graph[]): Promise<void> {
    this.#remember(graphs.flatMap(casesOf));
  }

  override getState(): SamplerState {
    return { ...super.getState(), cases: this.#cases.map(({ text, reward }) => ({ text, reward })) };
  }

  override setState({ cases = [], ...state }: SamplerState): void {
    super.setState(state);
    const { data } = codeOptions.shape.cases.safeParse(cases);
    if (data === undefined) {
      throw new UsageError(
        "invalid-state",
        "FewShotSampler.setState: the state was not returned by getState()",
      );
    }
    this.#cases = data;
  }

  protected override makeGraph(
    context: Conversation,
    start: { seed: number; episode: number },
    purpose: Purpose,
  ): Graph {
    return super.makeGraph(Conversation.of(this.list(context.toString(), start)), start, purpose);
  }

  /** The list that the tester continues in an episode. */
  protected list(heading: string, start: Exclude<EpisodeSeed, number>): string {
    const chosen = this.draw(start);
    const lines = chosen.map(({ text }, at) => `${at + 1}. ${text}\n`);
    return `${heading.trimEnd()}\n${lines.join("")}${chosen.length + 1}.`;
  }

  /** The cases of an episode's list. */
  protected draw({ seed, episode }: Exclude<EpisodeSeed, number>): Case[] {
    // The top k of log weight − log(−log u) are a weighted sample without replacement (Efraimidis & Spirakis 2006).
    const keys = this.#cases.map((each, at) => {
      const uniform = keyedUniform({ seed, stream: "few-shot", episode, node: 0 }, at);
      return { each, at, key: each.reward / this.temperature - Math.log(-Math.log(uniform)) };
    });
    keys.sort((a, b) => b.key - a.key || a.at - b.at);
    return keys.slice(0, this.shots).map(({ each }) => each);
  }

  /** Cases are ordered by their last use; a repeated one gets its new reward. */
  #remember(cases: readonly Case[]): void {
    const byText = new Map(this.#cases.map((each) => [each.text, each]));
    for (const { text, reward } of cases) {
      byText.delete(text);
      byText.set(text, { text, reward });
    }
    this.#cases = [...byText.values()].slice(-this.capacity);
  }
}

/** The probes of a graph that fit in a list: single-line, and with a reward. */
function casesOf(graph: Graph): Case[] {
  return [...graph.nodes()].flatMap((node) => {
    const text = String(node.probe).trim();
    return isRewarded(node) && text !== "" && !/[\r\n]/u.test(text) ? [{ text, reward: node.reward }] : [];
  });
}

export const fewShotSamplerKind = defineKind({
  role: "sampler",
  name: "few-shot",
  summary: "Lists of earlier cases that the tester continues (Perez et al.)",
  schema: options,
  make: async ({ cases: file, ...chosen }, { system, prompts, seed }) => {
    const records = file === undefined ? [] : parseGraphLines(await readTextFile(file, "the cases"), file);
    const cases = records.flatMap((record) => casesOf(graphFromRecord(record)));
    return new FewShotSampler(system, prompts, { ...chosen, cases, seed });
  },
});
