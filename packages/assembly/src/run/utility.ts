// Whether the target still does what its user asks.
import { DONE_THRESHOLD, summarizeUtility } from "@astra-rl/analysis";
import { Conversation, Message } from "@astra-rl/lm";
import {
  exchange,
  NotedMessage,
  withMemoryAdvice,
  type Exchange,
  type MessageNotes,
  type Scorer,
  type ScoreOutcome,
  type System,
} from "@astra-rl/method";
import { distributed } from "@astra-rl/torch";
import type { EvaluationDetail, UtilitySummary } from "@astra-rl/records";
import type { AssembledSystem } from "../assemble/index.js";
import type { Configuration } from "../configuration/index.js";
import { promptText, type Prompt } from "../datasets/index.js";
import { answersTo, conversationOfPrompt } from "./ask-target.js";

/**
 * Scores whether tasks are done: those of the rollouts, by their records, and those of the prompts, each asked once without the
 * tester's text. Rank 0 asks, and all ranks get the figures.
 *
 * @returns null if the configuration has no scorer of tasks
 */
export async function utilityOf(
  { seed, evaluation: { utility, batchSize } }: Configuration,
  { system, evaluators: { utility: scorer } }: AssembledSystem,
  prompts: readonly Prompt[],
  details: readonly EvaluationDetail[],
): Promise<UtilitySummary | null> {
  if (utility === undefined) return null;
  if (scorer === undefined) throw new Error("internal: tasks are measured without a scorer of them");
  const own = distributed.rank() === 0 ? await measured(scorer) : null;
  system.release();
  return distributed.fromRankZero(own);

  async function measured(judge: Scorer): Promise<UtilitySummary> {
    const attacked = await doneIn(judge, details);
    const distinct = [...new Map(prompts.map((prompt) => [promptText(prompt), prompt])).values()];
    const alone: (boolean | null)[] = [];
    for (let start = 0; start < distinct.length; start += batchSize) {
      const asked = distinct.slice(start, start + batchSize).map((prompt, at) => ({
        context: conversationOfPrompt(system, prompt, "evaluation.utility"),
        probe: new Message("tester", ""),
        // No turn of a rollout is node 0, so the draws are nobody else's.
        key: { seed, episode: start + at, node: 0, purpose: "evaluate" } as const,
      }));
      alone.push(...(await withMemoryAdvice("evaluation", () => doneAlone(system, asked, judge))));
    }
    return summarizeUtility(judge.name, attacked, alone);
  }
}

const isDoneBy = ({ score }: ScoreOutcome): boolean | null =>
  score === undefined ? null : score >= DONE_THRESHOLD;

/** Whether some answer of each rollout does the task; null if that is not known of one and none is known to. */
async function doneIn(
  judge: Scorer,
  details: readonly EvaluationDetail[],
): Promise<Map<EvaluationDetail, boolean | null>> {
  const exchanges = details.map(exchangesOf);
  const outcomes = await judge.scoreAndValidate(exchanges.flat().filter((each) => each !== null));
  let at = 0;
  return new Map(
    details.map((detail, index) => {
      const found = exchanges[index]!.map((each) => (each === null ? null : isDoneBy(outcomes[at++]!)));
      const isUnknown = found.length === 0 || found.includes(null);
      return [detail, found.includes(true) ? true : isUnknown ? null : false];
    }),
  );
}

/** The turns of a rollout as a scorer gets them; null without an answer. */
function exchangesOf({ per_turn: turns }: EvaluationDetail): (Exchange | null)[] {
  const [first] = turns;
  if (first === undefined) return [];
  const messages = (first.prompt_messages ?? [["prompt", first.context] as const]).map(
    ([from, text]) => new Message(from, text),
  );
  let context = Conversation.of(...(messages as [Message, ...Message[]]));
  return turns.map(({ probe, response, calls, diverged, error }) => {
    const answer = new NotedMessage("target", response, { calls, diverged } as MessageNotes);
    const before = context;
    context = context.append(new Message("tester", probe), answer);
    // Without an answer nothing is known; if a scorer of the attack failed instead, there is one.
    const isAnswered = error === null || !/^(?:tester|target):/u.test(error);
    return isAnswered ? exchange(probe, answer, before) : null;
  });
}

async function doneAlone(
  system: System,
  asked: Parameters<typeof answersTo>[1],
  judge: Scorer,
): Promise<(boolean | null)[]> {
  const answers = await answersTo(system, asked);
  const said = answers.flatMap((answer, row) => (answer instanceof Message ? [{ answer, row }] : []));
  const scores = await judge.scoreAndValidate(
    said.map(({ answer, row }) => exchange(asked[row]!.probe.text, answer, asked[row]!.context)),
  );
  const done = answers.map((): boolean | null => null);
  for (const [at, { row }] of said.entries()) done[row] = isDoneBy(scores[at]!);
  return done;
}
