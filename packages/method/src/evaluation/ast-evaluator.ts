import { UsageError, objectOption, parseOptions } from "@astra-rl/base";
import { z } from "zod";
import { goalOf, type Conversation, type Goal, Message } from "@astra-rl/lm";
import {
  controlsSchema,
  isPositive,
  EVALUATION_VERSION,
  type Control,
  type EvaluationDetail,
  type EvaluationOverall,
  type EvaluationRecord,
  type EvaluationTurn,
} from "@astra-rl/records";
import {
  measureDiversity,
  DEFAULT_THRESHOLD,
  harmlessProbeSuccess,
  isScored,
  meanOfKnown,
  summarize,
} from "@astra-rl/analysis";
import { Embedder, HashedNgramEmbedder, type Model } from "../models/index.js";
import { Scorer, scorerOption, exchange, NoScorer, type ScoreOutcome } from "../scorer/index.js";
import {
  type EpisodeSeed,
  type Graph,
  type Node,
  doneBefore,
  NotedMessage,
  notesOf,
  promptMessagesOf,
} from "../tree/index.js";
import type { PromptOf } from "../system/index.js";
import type { Sampler } from "../sampler/index.js";
import { Evaluator, type GraphMetrics } from "./evaluator.js";

const CONFIDENCE_RULE = "must be a number between 0 and 1, such as 0.95";

const options = z.strictObject({
  /** Scores probes and responses. Default: the scorer of the sampler's system. */
  scorer: scorerOption.optional(),
  /** Also scores responses, without effect on any other figure. Default: none. */
  secondScorer: scorerOption.optional(),
  /** Rollouts per start: all starts once, then all of them again. */
  repeats: z.int().min(1).default(1),
  /**
   * Measures the similarity of found attacks. Default: the embedder of the sampler's system, or hashed word and
   * character n-grams.
   */
  embedder: objectOption<Embedder>(
    "must be an Embedder (extend the class Embedder)",
    "embedAndValidate",
  ).optional(),
  /** Scores at or above this count as harmful. */
  threshold: z.number().gt(0).max(1).default(DEFAULT_THRESHOLD),
  /** They show that a scorer that finds nothing can detect harm, and that one that finds some does not call all harmful. */
  controls: controlsSchema,
  /** Prompts that training has seen: held-out ones among the starts are counted. */
  trainingPrompts: z.array(z.string()).default([]),
  /** Confidence level of the intervals. */
  confidence: z.number().gt(0, CONFIDENCE_RULE).lt(1, CONFIDENCE_RULE).default(0.95),
});

export type ASTEvaluatorOptions = z.input<typeof options>;

/** Scores of a turn's probe and response; if one is missing, use the score recorded on the node. */
export interface TurnScores {
  probe?: ScoreOutcome;
  response?: ScoreOutcome;
  /** The second scorer's of the response. */
  second?: ScoreOutcome;
}

type Controls = NonNullable<EvaluationRecord["summary"]["controls"]>;

const checked = new WeakMap<ASTEvaluator, Controls | null>();

/** What `checkControls` counts before any rollout; its summaries then have these counts. */
export async function controlsOf(evaluator: ASTEvaluator): Promise<Controls | null> {
  const controls = await evaluator.checkControls();
  checked.set(evaluator, controls);
  return controls;
}

/** Scores by node. */
export type Scores = ReadonlyMap<Node, TurnScores>;

/**
 * Metrics of conversations: harm of probes and responses per turn, the attack success rate over rollouts, and the
 * diversity of successful attacks.
 *
 * All texts of all rollouts are scored in one call, each text once; a role-aware scorer gets each response together
 * with its probe. If the scorer is the system's own, the scores recorded during rollout are reused.
 */
export class ASTEvaluator extends Evaluator<Conversation, Message, EvaluationRecord> {
  /** null if the system has none: then only scores recorded by its `assess` count. */
  readonly scorer: Scorer | null;
  readonly secondScorer: Scorer | null;
  readonly embedder: Embedder;
  readonly threshold: number;
  readonly confidence: number;
  readonly #controls: readonly Control[];
  readonly #trainingPrompts: ReadonlySet<string>;
  /** Number of starts without repeats; null where the evaluation has none. */
  readonly #starts: number | null;
  readonly #scorerIsSystems: boolean;
  /** Whether actions are messages; only then do empty texts count as a problem. */
  #readsMessages = false;

  /**
   * @param starts prompts or episodes to evaluate; null takes their number from `evaluate({ rollouts })`
   * @throws UsageError if the threshold or confidence is out of range, or if nothing is given to repeat
   */
  constructor(
    sampler: Sampler,
    starts: readonly (EpisodeSeed | PromptOf<Conversation>)[] | null = null,
    given: ASTEvaluatorOptions = {},
  ) {
    const parsed = parseOptions("ASTEvaluator", options, given);
    const { scorer, secondScorer = null, repeats, embedder, threshold, confidence, controls } = parsed;
    if (starts === null && repeats > 1) {
      throw new UsageError(
        "requires-option",
        "ASTEvaluator: repeats needs starts, which are tried several times; pass them",
      );
    }
    // Values other than lists are refused there.
    const isRepeated = repeats > 1 && Array.isArray(starts);
    super(sampler, isRepeated ? Array.from({ length: repeats }, () => [...starts]).flat() : starts);
    this.#starts = starts === null ? null : starts.length;
    const { scorer: own, embedder: systems } = sampler.system as { scorer?: unknown; embedder?: unknown };
    const chosen = scorer ?? own;
    this.scorer = chosen instanceof Scorer && !(chosen instanceof NoScorer) ? chosen : null;
    const { needsGoal = false } = this.scorer ?? {};
    if (this.scorer !== null && controls.some((each) => isGoalControl(each) !== needsGoal)) {
      const form = needsGoal
        ? "needs a goal, {goal: …, response: …}"
        : "must be a text, {harmless: a text} or {calls: …}";
      throw new UsageError(
        "inapplicable-option",
        `evaluation.controls: each ${form}, as the scorer ${this.scorer.name} reads it`,
      );
    }
    this.#controls = controls;
    this.#trainingPrompts = new Set(parsed.trainingPrompts);
    this.secondScorer = secondScorer;
    this.embedder = embedder ?? (systems instanceof Embedder ? systems : new HashedNgramEmbedder());
    this.threshold = threshold;
    this.confidence = confidence;
    this.#scorerIsSystems = this.scorer === null || chosen === own;
  }

  protected override async measure(graphs: readonly Graph[]): Promise<GraphMetrics[]> {
    const paths = graphs.map((graph) => graph.path());
    this.#readsMessages ||= paths.flat().some(({ response }) => response instanceof Message);
    const scores = new Map<Node, TurnScores>();
    const score = async (scorer: Scorer, asked: readonly (readonly [Node, keyof TurnScores])[]) => {
      const items = asked.map(([{ probe, response, context, failure }, which]) =>
        exchange(String(probe), which === "probe" ? null : (doneBefore(failure) ?? response), context),
      );
      const outcomes = items.length === 0 ? [] : await scorer.scoreAndValidate(items);
      for (const [index, [node, which]] of asked.entries()) {
        scores.set(node, { ...scores.get(node), [which]: outcomes[index]! });
      }
    };
    const turns = paths.flat();
    const unscored = turns.flatMap((node) =>
      (["probe", "response"] as const).flatMap((which) => {
        const isSaid = which === "probe" ? hasProbe(node) : hasResponse(node);
        return isSaid && this.#recorded(node, which) === undefined ? [[node, which] as const] : [];
      }),
    );
    if (this.scorer !== null) {
      requireTexts(this.scorer, unscored);
      await score(this.scorer, unscored);
    }
    if (this.secondScorer !== null) {
      const answered = turns.filter(hasResponse);
      await score(
        this.secondScorer,
        answered.map((node) => [node, "second"] as const),
      );
    }
    return paths.map((path, index) => {
      const metrics = this.measurePath(path, scores);
      const { models, goal } = graphs[index]!;
      const { target } = models;
      const overall = target === undefined ? metrics.overall : { ...metrics.overall, target };
      return { ...metrics, overall, ...(goal === null ? {} : { goal: { ...goal } }) };
    });
  }

  override async aggregateMetrics(all: readonly GraphMetrics[]): Promise<EvaluationRecord> {
    const details = this.#withPrompts(all);
    const { threshold, confidence, embedder } = this;
    const controls = checked.has(this) ? checked.get(this)! : await this.checkControls();
    const diversity = await measureDiversity(details, { embedder });
    const targets = targetsOf(this.sampler.system);
    // In the order in which they are first tried.
    const goals = [
      ...new Map(all.flatMap(({ goal }) => (goal === undefined ? [] : [[goal.id, goal]]))).values(),
    ];
    const summary = summarize(details, {
      threshold,
      confidence,
      diversity,
      targets,
      second: this.secondScorer?.name ?? null,
      countsEmpty: this.#readsMessages,
      isJudged: this.scorer !== null || details.some(isScored),
      trainingPrompts: this.#trainingPrompts,
      goals,
      ...(controls === null ? {} : { controls }),
    });
    return { summary, details, ...(goals.length === 0 ? {} : { goals }), version: EVALUATION_VERSION };
  }

  /** Marks the rollouts that start from the same prompt, by repeats or duplicates in the list. */
  #withPrompts(all: readonly GraphMetrics[]): EvaluationDetail[] {
    const firsts = new Map<unknown, number>();
    const prompts = all.map(({ goal, perTurn }, at) => {
      const [turn] = perTurn as EvaluationTurn[];
      // States that are not texts are distinguished by their index among the starts.
      const place = this.#starts === null ? at : at % this.#starts;
      const text = this.#readsMessages ? (turn?.context ?? place) : place;
      // One opener with two goals is two prompts.
      const prompt = goal === undefined ? text : JSON.stringify([goal.id, text]);
      if (!firsts.has(prompt)) firsts.set(prompt, at);
      return firsts.get(prompt)!;
    });
    const isShared = firsts.size < all.length;
    return all.map(({ overall, perTurn, goal }, at) => ({
      overall: {
        ...(overall as EvaluationOverall),
        ...(goal === undefined ? {} : { goal: goal.id }),
        ...(isShared ? { prompt: prompts[at]! } : {}),
      },
      per_turn: perTurn as EvaluationTurn[],
    }));
  }

  /** Counts of controls, and of those that the scorer decides rightly; null without controls. */
  async checkControls(): Promise<Controls | null> {
    if (this.#controls.length === 0) return null;
    if (this.scorer === null) {
      throw new UsageError(
        "scorer-required",
        "evaluation.controls: there is no scorer to check with them; leave it out",
      );
    }
    const outcomes = await this.scorer.scoreAndValidate(
      this.#controls.map((each) => {
        if (typeof each === "string") return exchange("", each, null);
        if ("harmless" in each) return exchange("", each.harmless, null);
        const { prompt, response } = each;
        if ("calls" in each) return { prompt, response, calls: each.calls as Message["calls"] };
        const { goal } = each;
        return {
          prompt,
          response,
          goal: goalOf((typeof goal === "string" ? { id: goal, text: goal } : goal) as Goal),
        };
      }),
    );
    const isRight = (each: Control, at: number) => {
      const { score } = outcomes[at]!;
      return score !== undefined && score >= this.threshold === isPositive(each);
    };
    const harmless = this.#controls.filter((each) => !isPositive(each)).length;
    const failure = outcomes.find((outcome) => outcome.failure !== undefined)?.failure;
    return {
      n: this.#controls.length,
      n_found: this.#controls.filter(isRight).length,
      ...(failure === undefined ? {} : { error: `${failure.stage}: ${failure.message}` }),
      ...(harmless === 0
        ? {}
        : {
            n_harmless: harmless,
            // One without a score was not passed.
            n_harmless_flagged: this.#controls.filter((each, at) => !isPositive(each) && !isRight(each, at))
              .length,
          }),
    };
  }

  /** Metrics of one conversation. */
  protected measurePath(path: readonly Node[], scores: Scores): GraphMetrics {
    const turns = path.map((node, index) => this.measureTurn(node, index + 1, scores));
    const first = (key: "probe_harm" | "response_harm") =>
      turns.find((turn) => (turn[key] ?? 0) >= this.threshold)?.turn ?? null;
    const overall: EvaluationOverall = {
      num_turns: turns.length,
      num_errors: turns.filter((turn) => turn.error !== null).length,
      mean_reward: meanOfKnown(turns.map((turn) => turn.reward)),
      mean_probe_harm: meanOfKnown(turns.map((turn) => turn.probe_harm)),
      mean_response_harm: meanOfKnown(turns.map((turn) => turn.response_harm)),
      first_harmful_probe_turn: first("probe_harm"),
      first_harmful_response_turn: first("response_harm"),
      harmless_probe_success: harmlessProbeSuccess(turns, this.threshold),
    };
    return { overall: overall as GraphMetrics["overall"], perTurn: turns as GraphMetrics["perTurn"] };
  }

  /** Metrics of one turn, counted from 1. */
  protected measureTurn(node: Node, turn: number, scores: Scores): EvaluationTurn {
    const probe = hasProbe(node) ? this.#outcome(node, "probe", scores) : undefined;
    const response = hasResponse(node) ? this.#outcome(node, "response", scores) : undefined;
    const answer = doneBefore(node.failure) ?? node.response;
    const { note, unanswered, ...actions } = notesOf(answer);
    const failure = node.failure ?? unanswered ?? probe?.failure ?? response?.failure ?? null;
    const outcome = failure?.cause ?? note ?? undefined;
    const second = scores.get(node)?.second;
    const promptMessages = turn === 1 ? promptMessagesOf(node.context) : null;
    const read = { probe, response, second_response: second } as const;
    const cut = (["probe", "response", "second_response"] as const).filter(
      (text) => read[text]?.cut === true,
    );
    return {
      turn,
      reward: Number.isFinite(node.reward) ? node.reward : null,
      probe_harm: probe?.score ?? null,
      response_harm: response?.score ?? null,
      ...(this.secondScorer === null ? {} : { second_response_harm: second?.score ?? null }),
      ...(cut.length === 0 ? {} : { cut }),
      context: String(node.context),
      ...(promptMessages === null
        ? {}
        : { prompt_messages: promptMessages.map(([from, text]) => [from, text]) }),
      probe: String(node.probe),
      response: String(node.response),
      probe_nll: node.likelihood?.nll ?? null,
      probe_tokens: node.likelihood?.tokens ?? null,
      ...endingOf(node),
      error: failure === null ? null : `${failure.stage}: ${failure.message}`,
      ...(outcome === undefined ? {} : { outcome }),
      ...actions,
    };
  }

  /** undefined if it is not scored. */
  #outcome(node: Node, which: "probe" | "response", scores: Scores): ScoreOutcome | undefined {
    const score = this.#recorded(node, which);
    if (score === undefined) return scores.get(node)?.[which];
    return node.cut?.includes(which) === true ? { score, cut: true } : { score };
  }

  #recorded(node: Node, which: "probe" | "response"): number | undefined {
    return this.#scorerIsSystems ? node.scores[which] : undefined;
  }
}

const isGoalControl = (control: Control): control is Extract<Control, { goal: unknown }> =>
  typeof control !== "string" && "goal" in control;

/**
 * Refuses states that convert to "[object Object]", which any scorer calls harmless.
 *
 * @throws UsageError if one is to be scored
 */
function requireTexts(scorer: Scorer, asked: readonly (readonly [Node, "probe" | "response"])[]): void {
  for (const [node, which] of asked) {
    if (!/^\[object \w+\]$/.test(String(node[which]))) continue;
    throw new UsageError(
      "no-text",
      `ASTEvaluator: the scorer ${scorer.name} judges texts, but a ${which} of this system is an object without a text; give ` +
        "the objects a method toString that the scorer can read, or leave the scorer out (scorer: {type: none} in a " +
        "configuration), so that the reward decides",
    );
  }
}

/** Whether the response ended at its maximum length; nothing where this is unknown. */
function endingOf(node: Node): { ended_by_length?: boolean } {
  const { response } = node;
  if (response instanceof NotedMessage && response.unanswered !== null) return {};
  if (response instanceof NotedMessage) return { ended_by_length: response.note === "unfinished" };
  const { sampled = null } = response instanceof Message ? response : {};
  return sampled === null ? {} : { ended_by_length: sampled.finished === "length" };
}

/** The names of a system's targets if it has several, including those never used. */
export function targetsOf(system: object): string[] {
  const { parts } = system as { parts?: { target?: Model; otherTargets?: readonly Model[] } };
  const targets = [parts?.target ?? [], parts?.otherTargets ?? []].flat();
  return targets.length < 2 ? [] : targets.map(({ name }) => name);
}

/** False if the tester failed, so that there is no probe to score. */
function hasProbe(node: Node): boolean {
  return node.failure?.stage !== "tester";
}

/**
 * False if `response` is a placeholder because the target failed, and nothing is known of what it did before. An empty
 * response is a response.
 */
function hasResponse(node: Node): boolean {
  return hasProbe(node) && (node.failure?.stage !== "target" || doneBefore(node.failure) !== null);
}
