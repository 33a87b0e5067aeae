// Whether the scorer and the target of an evaluation work at all.
import { Conversation, Message } from "@astra-rl/lm";
import { distributed } from "@astra-rl/torch";
import { summarize } from "@astra-rl/analysis";
import {
  ASTEvaluator,
  controlsOf,
  NoScorer,
  targetsOf,
  withMemoryAdvice,
  type Model,
  type NodeKey,
  type Scorer,
  type System,
} from "@astra-rl/method";
import {
  canaryOf,
  doubt,
  doubtsOfAnswers,
  doubtsOfControls,
  EVALUATION_VERSION,
  HARMLESS_TEXT,
  isPositive,
  type CanaryRecord,
  type Control,
  type Doubt,
  type DoubtRule,
  type EvaluationRecord,
  type EvaluationSummary,
  type ToolCallRecord,
} from "@astra-rl/records";
import { localModels, untoldModel, type AssembledSystem } from "../assemble/index.js";
import type { Configuration } from "../configuration/index.js";
import { promptText, type Prompt } from "../datasets/index.js";
import { agentModels } from "./agents.js";
import { answersTo } from "./ask-target.js";

/** Any target that answers at all says something else to each. */
const QUESTIONS = ["How are you today?", "What do you like to eat?"];

/**
 * The configuration with a harmless control, if it has none: a text or, for a judge of goals, a response that does not reach the goal
 * of the first control.
 */
export function withHarmlessControl(
  configuration: Configuration,
  { system, evaluators }: AssembledSystem,
): Configuration {
  const { controls } = configuration.evaluation;
  const scorer = (system as { scorer?: Scorer | null }).scorer ?? evaluators.scorer ?? null;
  if (scorer === null || scorer instanceof NoScorer || !controls.every(isPositive)) return configuration;
  const [first] = controls.filter((each) => typeof each === "object" && "goal" in each);
  const added: Control[] = !scorer.needsGoal
    ? [{ harmless: HARMLESS_TEXT }]
    : first === undefined
      ? []
      : [{ ...first, response: HARMLESS_TEXT, reached: false }];
  return {
    ...configuration,
    evaluation: { ...configuration.evaluation, controls: [...controls, ...added] },
  };
}

/** Episodes tried for each target, so that every target has some of them. */
const EPISODES_TO_FIND_A_TARGET = 200;

/** What was found before the first rollout. */
export interface Canary {
  /** What the scorer decided about the controls; null without any. */
  controls: NonNullable<EvaluationSummary["controls"]> | null;
  /** Answers of the targets; null where they cannot be asked. */
  answers: CanaryRecord | null;
  doubts: Doubt[];
  /** Whether rollouts are worth their cost: the user accepts all doubts, or there are none. */
  isTrusted: boolean;
}

/**
 * Checks the scorer with controls, and each target with plain questions, which it is asked without a tester. Benign prompts are such
 * questions, where there are two. Rank 0 asks, and all ranks get the answers. Targets whose states are no conversations are not asked.
 *
 * @param accepted rules of doubts that do not prevent rollouts
 */
export async function askCanary(
  { seed }: Configuration,
  assembled: AssembledSystem,
  evaluator: object,
  { benign = [], accepted = [] }: { benign?: readonly Prompt[]; accepted?: readonly DoubtRule[] } = {},
): Promise<Canary> {
  const controls =
    evaluator instanceof ASTEvaluator
      ? await withMemoryAdvice("evaluation", () => controlsOf(evaluator))
      : null;
  const answers = await answersOf(assembled, seed, benign);
  // All ranks decide alike.
  const doubts = await distributed.fromRankZero([
    ...(controls === null ? [] : doubtsOfControls(controls)),
    ...(answers === null ? [] : doubtsOfAnswers(answers)),
  ]);
  return { controls, answers, doubts, isTrusted: doubts.every(({ rule }) => accepted.includes(rule)) };
}

async function answersOf(
  assembled: AssembledSystem,
  seed: number,
  benign: readonly Prompt[],
): Promise<CanaryRecord | null> {
  const { system } = assembled;
  const own = [...new Set(benign.map(promptText))].slice(0, QUESTIONS.length);
  const questions = own.length < QUESTIONS.length ? QUESTIONS : own;
  const states = questions.map((question) => system.stateOf(question) as unknown);
  if (!states.every((state) => state instanceof Conversation)) return null;
  // Where the tester's texts come from a tool, a question is the user's task.
  const isTask = agentModels(system).some(({ options }) => options.channel !== undefined);
  // A model that gets no speakers continues the text.
  const end = untoldModel(assembled) === null ? "" : " ";
  const asked = keysByTarget(system, seed, questions.length).flatMap(({ target, keys, model }) =>
    questions.map((question, at) => ({
      question,
      ...(target === null ? {} : { target }),
      model,
      context: isTask ? states[at]! : Conversation.of(""),
      probe: new Message("tester", isTask ? "" : question + end),
      key: keys[at]!,
    })),
  );
  const answers =
    distributed.rank() > 0 ? [] : await withMemoryAdvice("evaluation", () => answersTo(system, asked));
  system.release();
  const said = answers.map((answer, row) => {
    const { context: _context, probe: _probe, key: _key, model: _model, ...about } = asked[row]!;
    if (!(answer instanceof Message))
      return { ...about, response: "", error: `${answer.stage}: ${answer.message}` };
    const calls = answer.calls as ToolCallRecord[];
    return { ...about, response: answer.text, ...(calls.length === 0 ? {} : { calls }), error: null };
  });
  return canaryOf(await distributed.fromRankZero(said));
}

interface TargetKeys {
  /** null if the system has only one. */
  target: string | null;
  keys: NodeKey[];
  /** A target that a custom choice makes so rarely, or never, that no key leads to it. */
  model?: Model | undefined;
}

/** Keys of questions to each target of a system: of several, each episode has one. */
function keysByTarget(system: System, seed: number, count: number): TargetKeys[] {
  // Draws of another attempt, so that they are nobody else's.
  const keyOf = (episode: number) => ({ seed, episode, node: 0, draw: 1, purpose: "evaluate" }) as const;
  const targets = targetsOf(system);
  const first = Array.from({ length: count }, (_, episode) => keyOf(episode));
  if (targets.length === 0) return [{ target: null, keys: first }];
  const found = new Map(targets.map((target) => [target, [] as NodeKey[]]));
  for (let episode = 0; episode < EPISODES_TO_FIND_A_TARGET * targets.length; episode += 1) {
    const keys = found.get(system.modelsAt(keyOf(episode))["target"] ?? "");
    if (keys !== undefined && keys.length < count) keys.push(keyOf(episode));
  }
  const models = localModels(system) as readonly Model[];
  return [...found].flatMap(([target, keys]) => {
    if (keys.length === count) return [{ target, keys }];
    const model = models.find(({ name, role }) => name === target && role === "target");
    // Without its model another target would answer under its name.
    return model === undefined ? [] : [{ target, keys: first, model }];
  });
}

/** The figures of an evaluation whose canary failed, so that no rollout was made. */
export function figuresWithoutRollouts(
  { evaluation: { threshold } }: Configuration,
  { system }: AssembledSystem,
  { controls }: Canary,
): EvaluationRecord {
  const summary = summarize([], {
    threshold,
    targets: targetsOf(system),
    ...(controls === null ? {} : { controls }),
  });
  const none = doubt("no-turns", "no rollout was made, since the canary failed");
  return { summary: { ...summary, doubts: [none] }, details: [], version: EVALUATION_VERSION };
}

/** The summary of an evaluation with its canary. */
export function withCanary(summary: EvaluationSummary, { answers, doubts }: Canary): EvaluationSummary {
  const known = new Set(summary.doubts.map(({ rule }) => rule));
  return {
    ...summary,
    ...(answers === null ? {} : { canary: answers }),
    doubts: [...summary.doubts, ...doubts.filter(({ rule }) => !known.has(rule))],
  };
}
