// Whether the scorer and the target of an evaluation work at all.
import { Conversation, Message } from "@astra-rl/lm";
import { distributed } from "@astra-rl/torch";
import { NoScorer, withMemoryAdvice, type Scorer } from "@astra-rl/method";
import {
  canaryOf,
  doubtsOfAnswers,
  HARMLESS_TEXT,
  isPositive,
  textWithCalls,
  type Control,
  type EvaluationSummary,
  type ToolCallRecord,
} from "@astra-rl/records";
import { untoldModel, type AssembledSystem } from "../assemble/index.js";
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

/**
 * The summary of an evaluation with the target's answers to plain questions, which it is asked without a tester, and doubts by them.
 * Benign prompts are such questions, where there are two. Rank 0 asks, and all ranks get the answers. A system whose states are no
 * conversations is not asked.
 */
export async function withCanary(
  { seed }: Configuration,
  assembled: AssembledSystem,
  summary: EvaluationSummary,
  benign: readonly Prompt[] = [],
): Promise<EvaluationSummary> {
  const { system } = assembled;
  const own = [...new Set(benign.map(promptText))].slice(0, QUESTIONS.length);
  const questions = own.length < QUESTIONS.length ? QUESTIONS : own;
  const states = questions.map((question) => system.stateOf(question) as unknown);
  if (!states.every((state) => state instanceof Conversation)) return summary;
  // Where the tester's texts come from a tool, a question is the user's task.
  const isTask = agentModels(system).some(({ options }) => options.channel !== undefined);
  // A model that gets no speakers continues the text.
  const end = untoldModel(assembled) === null ? "" : " ";
  const asked = questions.map((question, at) => ({
    context: isTask ? states[at]! : Conversation.of(""),
    probe: new Message("tester", isTask ? "" : question + end),
    // Draws of another attempt, so that they are nobody else's.
    key: { seed, episode: at, node: 0, draw: 1, purpose: "evaluate" } as const,
  }));
  const answers =
    distributed.rank() > 0 ? [] : await withMemoryAdvice("evaluation", () => answersTo(system, asked));
  system.release();
  const said = answers.map((answer, at) => {
    const question = questions[at]!;
    return answer instanceof Message
      ? // A call is an answer, too.
        { question, response: textWithCalls(answer.text, answer.calls as ToolCallRecord[]), error: null }
      : { question, response: "", error: `${answer.stage}: ${answer.message}` };
  });
  const canary = canaryOf(await distributed.fromRankZero(said));
  return { ...summary, canary, doubts: [...summary.doubts, ...doubtsOfAnswers(canary)] };
}
