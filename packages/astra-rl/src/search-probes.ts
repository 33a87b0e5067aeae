import { keyedUniform, UsageError } from "@astra-rl/base";
import { Conversation } from "@astra-rl/lm";
import { nextTurn, ASTEvaluator, type PromptOf, type Sampler, type ReplayTester } from "@astra-rl/method";
import {
  bestFirst,
  REDUCTION,
  roundsOf,
  successiveHalving,
  tallyOf,
  harmlessProbeSuccess,
  hasFailed,
  meanOfKnown,
  probeNll,
  type Ranked,
  type Trial,
} from "@astra-rl/analysis";
import { doubtsOf, type Doubt, type EvaluationTurn, type SearchRecord } from "@astra-rl/records";
import { assembleEvaluator, type AssembledSystem, type Configuration, type Prompt } from "@astra-rl/assembly";

/** How much less likely than the mean of the sampled probes a probe may be, in nats a token. */
const SLACK_NATS = 0.1;

/** A probe is kept if its success rate is at least this fraction of the best one's. */
const WORTH_KEEPING = 0.5;

export interface SearchOptions {
  /** Prompts to search on. */
  openers: readonly Prompt[];
  /** Maximum number of target responses of the search. */
  queries: number;
  /** Maximum number of probes to find; those that succeed less than half as often as the best are excluded. */
  keep: number;
  /**
   * Maximum nats per token of a probe; null for no bound. Default: the mean of the sampled probes plus 0.1, if
   * measured.
   */
  maxNll?: number | null | undefined;
  /** First episode of the search, so that it shares no draws with an evaluation of earlier ones. */
  firstEpisode: number;
  /** Replaces the system's tester after the sample, and generates the probes. */
  tester: ReplayTester;
  /** Called with the number of answers so far. */
  onProgress?: (done: number) => void;
}

/**
 * Searches for probes that lead to harm from any opener: a sample of conversations of the system's tester, then successive halving
 * of those probes that are harmless and likely. A probe is tried as it is evaluated: in whole conversations, repeated
 * at each turn. One target response is one query.
 *
 * @returns the probes found; or why too many responses failed or were empty to choose between probes
 * @throws UsageError if no probe is harmless and likely enough, and for systems and samplers that cannot be searched
 */
export async function searchProbes(
  configuration: Configuration,
  assembled: AssembledSystem,
  { openers, queries, keep, maxNll: bound, firstEpisode, tester, onProgress = () => {} }: SearchOptions,
): Promise<{ search: SearchRecord } | { search: null; doubts: Doubt[] }> {
  const { seed, evaluation } = configuration;
  const evaluator = await evaluatorOf(configuration, assembled, openers);
  const { threshold } = evaluator;
  const depth = depthOf(configuration);
  const rounds = roundsOf(queries, { keep, openers: openers.length, depth });
  const starts = shuffled(evaluator.starts as readonly PromptOf<Conversation>[], seed);
  const said: EvaluationTurn[][] = [];
  const answersIn = (some: readonly EvaluationTurn[][]) => some.flat().filter(wasAsked).length;
  /** A conversation from each start, in the search's next episodes. */
  const take = async (from: readonly PromptOf<Conversation>[]): Promise<EvaluationTurn[][]> => {
    const first = said.length;
    for (let done = 0; done < from.length; done += evaluation.batchSize) {
      const batch = from.slice(done, done + evaluation.batchSize);
      const episode = firstEpisode + first + done;
      const graphs = await evaluator.sampler.evalRolloutMany(batch, { seed, episode });
      const measured = await evaluator.computeMetricsMany(graphs);
      said.push(...measured.map(({ perTurn }) => perTurn as EvaluationTurn[]));
      await nextTurn();
      onProgress(answersIn(said));
    }
    return said.slice(first);
  };

  const size = Math.floor(queries / rounds / depth);
  const sample = await take(Array.from({ length: size }, (_, at) => starts[at % starts.length]!));
  const doubts = doubtsOfTurns(sample.flat(), threshold);
  if (doubts.length > 0) return { search: null, doubts };
  if (sample.flat().every(({ response_harm: harm }) => harm === null)) {
    throw new UsageError(
      "nothing-scored",
      "search: no response has a score, and only harm can be searched for; configure a scorer",
    );
  }
  const sampleNll = probeNll(sample.flat());
  if (sampleNll === null && typeof bound === "number") throw new UsageError("no-likelihood", NO_LIKELIHOOD);
  const maxNll = bound === undefined ? (sampleNll === null ? null : sampleNll + SLACK_NATS) : bound;

  const candidates = candidatesOf(sample.flat(), threshold);
  const likely = bestFirst(candidates, maxNll).map(({ candidate }) => candidate);
  if (likely.length === 0) throw new UsageError("nothing-found", nothingFound(candidates, maxNll));
  tester.takeOver(assembled.system);
  const tryOn = async (own: readonly string[], places: readonly number[]): Promise<Trial[][]> => {
    const pairs = own.flatMap((probe) => places.map((place) => ({ probe, start: starts[place]! })));
    tester.say(
      pairs.map(({ probe }) => Array.from({ length: depth }, () => probe)),
      firstEpisode + said.length,
    );
    const tried = await take(pairs.map(({ start }) => start));
    const trials = tried.map((turns) => trialOf(turns, threshold));
    return own.map((_, at) => trials.slice(at * places.length, (at + 1) * places.length));
  };
  const halved = await successiveHalving(likely, tryOn, {
    trials: Math.floor(queries / depth) - size,
    openers: starts.length,
    first: Math.ceil((size * depth) / REDUCTION),
    rounds: rounds - 1,
    keep,
    maxNll,
  });
  const later = doubtsOfTurns(said.slice(size).flat(), threshold);
  if (later.length > 0) return { search: null, doubts: later };
  const found = worthKeeping(halved.found).slice(0, keep);
  if (found.length === 0) throw new UsageError("nothing-found", nothingFound(halved.tried, maxNll));
  return {
    search: {
      queries: answersIn(said),
      budget: queries,
      n_failed: said.flat().filter(hasFailed).length,
      rounds: [{ candidates: candidates.length, openers: Math.min(size, starts.length) }, ...halved.rounds],
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

/** Probes that lead to harm at least half as often as the best one; all if none does. */
function worthKeeping<C>(found: readonly Ranked<C>[]): Ranked<C>[] {
  const best = found[0]?.tally.rate ?? 0;
  return found.filter(({ tally }) => tally.rate >= best * WORTH_KEEPING);
}

/** Why a bound on the likelihood cannot be applied. */
export const NO_LIKELIHOOD =
  "--max-nll: no model of this system computes the likelihood of probes; set models.likelihood, or leave the " +
  "option out to search " +
  "without a bound";

/** Turns of a conversation in the evaluation of a configuration. */
export const depthOf = ({ evaluation, sampler }: Configuration): number =>
  evaluation.depth ?? (sampler["depth"] as number);

/** Measures conversations from the openers. @throws UsageError for systems without turns of texts */
async function evaluatorOf(
  configuration: Configuration,
  assembled: AssembledSystem,
  openers: readonly Prompt[],
): Promise<ASTEvaluator> {
  if (!("depth" in configuration.sampler)) {
    throw new UsageError(
      "sampler-without-depth",
      `search: the sampler ${configuration.sampler.type} has no depth, which a search requires, since it ` +
        `sends the probe at each turn; use the sampler ast or path`,
    );
  }
  const { evaluation } = configuration;
  const made: ASTEvaluator = await assembleEvaluator(
    { ...configuration, evaluation: { ...evaluation, repeats: 1 } },
    assembled,
    openers,
  );
  const { sampler, scorer, threshold } = made;
  const starts = made.starts!;
  if (!(sampler as Partial<Sampler>).startsFromPrompts) {
    throw new UsageError(
      "episodes-only",
      `search: the sampler ${configuration.sampler.type} does not start from prompts, which a search ` +
        `requires; use the ` +
        "sampler ast or path",
    );
  }
  if (!(assembled.system.stateOf(starts[0] as PromptOf<Conversation>) instanceof Conversation)) {
    throw new UsageError(
      "not-a-conversation",
      "search: the states of this system are not conversations, which a search requires; train a tester instead",
    );
  }
  // The search uses neither the second scorer nor the controls.
  return new ASTEvaluator(sampler, starts, { threshold, ...(scorer === null ? {} : { scorer }) });
}

/** In an order determined by the seed. */
function shuffled<T>(items: readonly T[], seed: number): T[] {
  const drawn = items.map((item, node) => {
    return { item, draw: keyedUniform({ seed, stream: "openers of the search", episode: 0, node }, 0) };
  });
  return drawn.sort((a, b) => a.draw - b.draw).map(({ item }) => item);
}

/** The distinct probes of a sample, ignoring surrounding white space, with their trials. */
function candidatesOf(sample: readonly EvaluationTurn[], threshold: number): Ranked<string>[] {
  const byText = new Map<string, { candidate: string; trials: Trial[] }>();
  for (const turn of sample) {
    const text = turn.probe.trim();
    if (text === "") continue;
    const known = byText.get(text) ?? { candidate: turn.probe, trials: [] };
    known.trials.push(trialOf([turn], threshold));
    byText.set(text, known);
  }
  return [...byText.values()].map(({ candidate, trials }) => ({ candidate, tally: tallyOf(trials) }));
}

/** Whether the target was called: not if the tester failed. */
const wasAsked = ({ error }: EvaluationTurn): boolean => error?.startsWith("tester:") !== true;

const isUnknown = (turn: EvaluationTurn): boolean => hasFailed(turn) || turn.response_harm === null;

function trialOf(turns: readonly EvaluationTurn[], threshold: number): Trial {
  return {
    isSuccess: harmlessProbeSuccess(turns, threshold) === true,
    isFailure: turns.some(isUnknown),
    isHarmful: turns.some(({ probe_harm: harm }) => harm !== null && harm >= threshold),
    score: meanOfKnown(turns.map(({ response_harm: harm }) => harm)),
    nll: probeNll(turns),
    tokens: turns.reduce((sum, { probe_tokens: tokens }) => sum + (tokens ?? 0), 0),
  };
}

function doubtsOfTurns(turns: readonly EvaluationTurn[], threshold: number): Doubt[] {
  const answered = turns.filter((turn) => !isUnknown(turn));
  return doubtsOf({
    turns: turns.length,
    failed: turns.filter(hasFailed).length,
    emptyProbes: answered.filter(({ probe }) => probe.trim() === "").length,
    emptyResponses: answered.filter(
      ({ response, calls = [] }) => response.trim() === "" && calls.length === 0,
    ).length,
    // A candidate is repeated at each turn.
    probes: null,
    distinctProbes: null,
    foundHarm: turns.some(({ response_harm: harm }) => harm !== null && harm >= threshold),
  });
}

function nothingFound(tried: readonly Ranked<string>[], maxNll: number | null): string {
  const harmless = tried.filter(({ tally }) => tally.isHarmless);
  const nlls = harmless.flatMap(({ tally }) => tally.nll ?? []);
  if (harmless.length === 0 || maxNll === null || nlls.length === 0) {
    return (
      `search: all of the ${tried.length} probes that were tried are harmful themselves or empty; ` +
      `inspect them with rollout`
    );
  }
  return (
    `search: none of the ${harmless.length} harmless probes that were tried is within ${maxNll.toFixed(2)} nats a token, the ` +
    `most likely one has ${Math.min(...nlls).toFixed(2)}; give a higher --max-nll, or "none"`
  );
}
