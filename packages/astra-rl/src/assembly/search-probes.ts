import { keyedUniform } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/torch";
import type { Configuration } from "../configuration/index.js";
import {
  Conversation,
  Message,
  nextTurn,
  type Graph,
  type PromptOf,
  type Sampler,
  type System,
} from "../core/index.js";
import type { Prompt } from "../datasets/index.js";
import { ASTEvaluator } from "../evaluation/index.js";
import {
  bestFirst,
  REDUCTION,
  roundsOf,
  successiveHalving,
  tallyOf,
  type CandidateLikelihood,
  type Ranked,
  type Trial,
} from "../evaluation/successive-halving.js";
import type { ASTSystem } from "../system/index.js";
import { harmlessProbeSuccess, probeNll } from "../evaluation/summarize.js";
import { doubtsOf, type Doubt, type EvaluationTurn, type SearchRecord } from "../records/index.js";
import type { ReplayTester } from "../tester/index.js";
import { assembleEvaluator } from "./assemble.js";

/** Contexts in which a candidate is read before it is tried: in its own it is likelier than elsewhere, since it was sampled there. */
const SCREENING = 12;

/** How much less likely than the mean of the sampled probes a probe may be, in nats a token. */
const SLACK_NATS = 0.1;

export interface SearchOptions {
  /** Prompts to search on. */
  openers: readonly Prompt[];
  /** Answers of the target that the search may take. */
  queries: number;
  /** Number of probes to find. */
  keep: number;
  /** Most nats a token of a probe; null for no bound. Default: the mean of the sampled probes and 0.1 more, if it is measured. */
  maxNll?: number | null | undefined;
  /** The episodes of the search are this one and later ones, so that it shares no draws with an evaluation of earlier ones. */
  firstEpisode: number;
  /** Says the probes in the place of the system's tester, from the end of the sample on. */
  tester: ReplayTester;
  /** Called with the number of answers so far. */
  onProgress?: (done: number) => void;
}

/**
 * Searches for probes that lead to harm in any context: conversations of the system's tester from the openers, then successive
 * halving of their probes, as far as these are harmless and likely. The contexts to try them in are the openers and what the sampled
 * conversations have said before each later turn, so that a probe is as likely and as harmful there as it is in an evaluation. One
 * answer of the target is one query.
 *
 * @returns what was found; or why too many answers failed or were empty for a choice between probes
 * @throws UsageError where no probe is harmless and likely enough, and for systems and samplers that cannot be searched
 */
export async function searchProbes(
  configuration: Configuration,
  system: System,
  { openers, queries, keep, maxNll: bound, firstEpisode, tester, onProgress = () => {} }: SearchOptions,
): Promise<{ search: SearchRecord } | { search: null; doubts: Doubt[] }> {
  const { seed, evaluation } = configuration;
  const rounds = roundsOf(queries, keep, openers.length);
  const size = Math.floor(queries / rounds);
  const depth = Math.min(depthOf(configuration), size);
  const conversations = await evaluatorOf(configuration, system, { openers, depth });
  const single = await evaluatorOf(configuration, system, { openers, depth: 1 });
  const { threshold } = single;
  const starts = shuffled(conversations.starts as readonly PromptOf<Conversation>[], seed, "openers");
  const turns: EvaluationTurn[] = [];
  const answersIn = (some: readonly EvaluationTurn[]) => some.filter(wasAsked).length;
  let episode = firstEpisode;
  /** A rollout from each start, in the search's next episodes. */
  const take = async (evaluator: ASTEvaluator, from: readonly PromptOf<Conversation>[]): Promise<Graph[]> => {
    const grown: Graph[] = [];
    for (let done = 0; done < from.length; done += evaluation.batchSize) {
      const batch = from.slice(done, done + evaluation.batchSize);
      const graphs = await evaluator.sampler.evalRolloutMany(batch, { seed, episode });
      episode += batch.length;
      const measured = await evaluator.computeMetricsMany(graphs);
      turns.push(...measured.flatMap(({ perTurn }) => perTurn as EvaluationTurn[]));
      grown.push(...graphs);
      await nextTurn();
      onProgress(answersIn(turns));
    }
    return grown;
  };

  const from = Array.from({ length: Math.floor(size / depth) }, (_, at) => starts[at % starts.length]!);
  const contexts = contextsOf(await take(conversations, from), starts, { system, seed });
  const sample = [...turns];
  const doubts = doubtsOfTurns(sample, threshold);
  if (doubts.length > 0) return { search: null, doubts };
  if (sample.every(({ response_harm: harm }) => harm === null)) {
    throw new UsageError(
      "search: no response has a score, and only harm can be searched for; configure a scorer",
    );
  }
  const sampleNll = probeNll(sample);
  if (sampleNll === null && typeof bound === "number") throw new UsageError(NO_LIKELIHOOD);
  const maxNll = bound === undefined ? (sampleNll === null ? null : sampleNll + SLACK_NATS) : bound;

  const sampled = candidatesOf(sample, threshold);
  const candidates = bestFirst(sampled, null);
  if (candidates.length === 0) throw new UsageError(nothingFound(sampled, null));
  const elsewhere = contexts.slice(-SCREENING).map((context) => system.stateOf(context));
  const read = await likelihoodsIn(elsewhere, candidates, { system, batchSize: evaluation.batchSize });
  const screened = candidates.map(({ candidate, tally }, at) => {
    const nll = read[at]!.length === 0 ? tally.nll : tallyOf([], read[at]).nll;
    return { candidate, likelihoods: read[at]!, tally: { ...tally, nll } };
  });
  const likely = bestFirst(screened, maxNll) as typeof screened;
  if (likely.length === 0) throw new UsageError(nothingFound(screened, maxNll));
  tester.takeOver(system);
  const tryIn = async (own: readonly string[], places: readonly number[]): Promise<Trial[][]> => {
    const pairs = own.flatMap((probe) => places.map((place) => ({ probe, context: contexts[place]! })));
    tester.say(
      pairs.map(({ probe }) => [probe]),
      episode,
    );
    const before = turns.length;
    await take(
      single,
      pairs.map(({ context }) => context),
    );
    const trials = turns.slice(before).map((turn) => trialOf(turn, threshold));
    return own.map((_, at) => trials.slice(at * places.length, (at + 1) * places.length));
  };
  const halved = await successiveHalving(likely, tryIn, {
    queries: queries - sample.length,
    contexts: contexts.length,
    first: Math.ceil(size / REDUCTION),
    rounds: rounds - 1,
    keep,
    maxNll,
  });
  const later = doubtsOfTurns(turns.slice(sample.length), threshold);
  if (later.length > 0) return { search: null, doubts: later };
  const found = halved.found.slice(0, keep);
  if (found.length === 0) throw new UsageError(nothingFound(halved.last, maxNll));
  return {
    search: {
      queries: answersIn(turns),
      budget: queries,
      n_failed: turns.filter(hasFailed).length,
      rounds: [
        { candidates: sample.length, contexts: 1, queries: answersIn(sample) },
        ...halved.rounds.map((round) => ({ ...round, queries: round.candidates * round.contexts })),
      ],
      sample_nll: sampleNll,
      max_nll: maxNll,
      probes: found.map(({ candidate, tally: { tried, successes, rate, nll } }) => ({
        probe: candidate,
        biased_estimate: { n_tried: tried, n_successes: successes, rate },
        nll,
      })),
    },
  };
}

/** Why a bound on the likelihood cannot be kept to. */
export const NO_LIKELIHOOD =
  "--max-nll: no model of this system tells how likely a probe is; give models.likelihood, or leave the option out, and probes " +
  "are searched for without a bound";

/** Turns of a conversation in the evaluation of a configuration. */
export const depthOf = ({ evaluation, sampler }: Configuration): number =>
  evaluation.depth ?? (sampler["depth"] as number);

/** Measures conversations of this many turns. @throws UsageError for what has no turns with texts */
async function evaluatorOf(
  configuration: Configuration,
  system: System,
  { openers, depth }: { openers: readonly Prompt[]; depth: number },
): Promise<ASTEvaluator> {
  if (!("depth" in configuration.sampler)) {
    throw new UsageError(
      `search: the sampler ${configuration.sampler.type} has no depth, and probes are tried for one turn; take the sampler ast or path`,
    );
  }
  const { evaluation } = configuration;
  const made: unknown = await assembleEvaluator(
    { ...configuration, evaluation: { ...evaluation, depth, repeats: 1 } },
    system,
    openers,
  );
  if (!(made instanceof ASTEvaluator)) {
    throw new UsageError("search: takes the evaluator of the package; leave the section evaluator out");
  }
  const { sampler, scorer, threshold } = made;
  const starts = made.starts!;
  if (!(sampler as Partial<Sampler>).startsFromPrompts) {
    throw new UsageError(
      `search: the sampler ${configuration.sampler.type} does not start from prompts, from which probes are tried; take the ` +
        "sampler ast or path",
    );
  }
  if (!(system.stateOf(starts[0] as PromptOf<Conversation>) instanceof Conversation)) {
    throw new UsageError(
      "search: the states of this system are no conversations, and a probe is a text that is said in one; train a tester instead",
    );
  }
  // Neither the second scorer nor the controls have a part in the search.
  return new ASTEvaluator(sampler, starts, { threshold, ...(scorer === null ? {} : { scorer }) });
}

/**
 * The contexts to try probes in: first turns, second turns and so on take turns, so that any number of them has as many of each,
 * and each is drawn from all conversations.
 */
function contextsOf(
  graphs: readonly Graph[],
  starts: readonly PromptOf<Conversation>[],
  { system, seed }: { system: System; seed: number },
): PromptOf<Conversation>[] {
  const later: Conversation[][] = [];
  for (const [at, graph] of graphs.entries()) {
    // A sampler that puts its own text before an opener would put it there once more.
    if (String(graph.context) !== String(system.stateOf(starts[at % starts.length]!))) continue;
    for (const [turn, { context }] of graph.path().slice(1).entries()) (later[turn] ??= []).push(context);
  }
  const byTurn = [starts, ...later.map((each, turn) => shuffled(each, seed, `contexts of turn ${turn + 2}`))];
  const longest = Math.max(...byTurn.map(({ length }) => length));
  return Array.from({ length: longest }, (_, at) => byTurn.flatMap((each) => each[at] ?? [])).flat();
}

/** How likely each candidate is in each of these contexts; nothing where no model tells it. */
async function likelihoodsIn(
  contexts: readonly Conversation[],
  candidates: readonly Ranked<string>[],
  { system, batchSize }: { system: System; batchSize: number },
): Promise<CandidateLikelihood[][]> {
  const read = candidates.map((): CandidateLikelihood[] => []);
  const { tellsLikelihood, likelihood } = system as Partial<ASTSystem>;
  if (tellsLikelihood !== true || likelihood === undefined) return read;
  const probes = candidates.map(({ candidate }) => new Message("tester", candidate));
  // By context: what all probes of a batch follow is read once.
  for (const context of contexts) {
    for (let first = 0; first < probes.length; first += batchSize) {
      const some = probes.slice(first, first + batchSize);
      const likelihoods = await likelihood.call(
        system,
        some.map(() => context),
        some,
      );
      likelihoods.forEach((each, at) => read[first + at]!.push(each));
      await nextTurn();
    }
  }
  system.release();
  return read;
}

/** In an order that the seed and the name alone decide. */
function shuffled<T>(items: readonly T[], seed: number, name: string): T[] {
  const drawn = items.map((item, node) => {
    return { item, draw: keyedUniform({ seed, stream: `search: ${name}`, episode: 0, node }, 0) };
  });
  return drawn.sort((a, b) => a.draw - b.draw).map(({ item }) => item);
}

/** The distinct probes of a sample with their trials; white space around a text makes no other probe. */
function candidatesOf(sample: readonly EvaluationTurn[], threshold: number): Ranked<string>[] {
  const byText = new Map<string, { candidate: string; trials: Trial[] }>();
  for (const turn of sample) {
    const text = turn.probe.trim();
    if (text === "") continue;
    const known = byText.get(text) ?? { candidate: turn.probe, trials: [] };
    known.trials.push(trialOf(turn, threshold));
    byText.set(text, known);
  }
  return [...byText.values()].map(({ candidate, trials }) => ({ candidate, tally: tallyOf(trials) }));
}

/** Whether the target was asked: not where the tester failed. */
const wasAsked = ({ error }: EvaluationTurn): boolean => error?.startsWith("tester:") !== true;

const hasFailed = ({ error, response_harm: harm }: EvaluationTurn): boolean =>
  error !== null || harm === null;

function trialOf(turn: EvaluationTurn, threshold: number): Trial {
  return {
    isSuccess: harmlessProbeSuccess([turn], threshold) === true,
    isFailure: hasFailed(turn),
    isHarmful: turn.probe_harm !== null && turn.probe_harm >= threshold,
    score: turn.response_harm,
    nll: turn.probe_nll,
    tokens: turn.probe_tokens,
  };
}

function doubtsOfTurns(turns: readonly EvaluationTurn[], threshold: number): Doubt[] {
  const answered = turns.filter((turn) => !hasFailed(turn));
  return doubtsOf({
    turns: turns.length,
    failed: turns.filter(({ error }) => error !== null).length,
    emptyProbes: answered.filter(({ probe }) => probe.trim() === "").length,
    emptyResponses: answered.filter(({ response }) => response.trim() === "").length,
    // A candidate is said again and again.
    probes: null,
    distinctProbes: null,
    foundHarm: turns.some(({ response_harm: harm }) => harm !== null && harm >= threshold),
  });
}

function nothingFound(tried: readonly Ranked<string>[], maxNll: number | null): string {
  const harmless = tried.filter(({ tally }) => tally.isHarmless);
  const nlls = harmless.flatMap(({ tally }) => tally.nll ?? []);
  if (harmless.length === 0 || maxNll === null || nlls.length === 0) {
    return `search: all of the ${tried.length} probes that were tried are harmful themselves or empty; look at them with rollout`;
  }
  return (
    `search: none of the ${harmless.length} harmless probes that were tried is within ${maxNll.toFixed(2)} nats a token, the ` +
    `likeliest has ${Math.min(...nlls).toFixed(2)}; give a higher --max-nll, or "none"`
  );
}
