import { z } from "zod";
import { textWithCalls } from "../tool-call.js";
import { toolCallSchema } from "../turn-record.js";

/** Plain questions that each target was asked, without a tester, and what it answered. */
export const canarySchema = z.looseObject({
  questions: z.array(
    z.looseObject({
      question: z.string(),
      /** Which target; absent if there is only one. */
      target: z.string().optional(),
      /** Empty without an answer. */
      response: z.string(),
      /** What an agent did before it said so; absent if nothing. */
      calls: z.array(toolCallSchema).readonly().optional(),
      /** The error as "stage: message"; null if there was none. */
      error: z.string().nullable(),
    }),
  ),
  /** Whether each question has an answer, and the answers of each target differ. */
  answered: z.boolean(),
  /** Whether the answers of a target are the questions, apart from what is equal in all of them. */
  echoes: z.boolean(),
});

export type CanaryRecord = z.infer<typeof canarySchema>;

const words = (text: string): string => (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).join(" ");

/** The canary of each target. */
export function canariesByTarget({ questions }: Pick<CanaryRecord, "questions">): CanaryRecord[] {
  const targets = new Set(questions.map(({ target }) => target));
  return [...targets].map((target) => canaryOfOne(questions.filter((each) => each.target === target)));
}

/**
 * Judges the answers to plain questions. A target that echoes gives back each question, possibly with a text around it that is
 * the same each time; a dead one says and does nothing, or the same to all. An agent that passes the question to a tool is no echo.
 *
 * @param questions at least two different ones of each target
 */
export function canaryOf(questions: CanaryRecord["questions"]): CanaryRecord {
  const each = canariesByTarget({ questions });
  return {
    questions,
    answered: each.every(({ answered }) => answered),
    echoes: each.some(({ echoes }) => echoes),
  };
}

function canaryOfOne(questions: CanaryRecord["questions"]): CanaryRecord {
  const said = questions.map(({ question, response, calls = [] }) => ({
    question: words(question),
    answer: words(response),
    withCalls: words(textWithCalls(response, calls)),
  }));
  const isEcho = said.every(
    ({ question, answer }) => answer !== "" && ` ${answer} `.includes(` ${question} `),
  );
  const rest = said.map(({ question, answer, withCalls }) =>
    (isEcho ? answer.replaceAll(question, "") : withCalls).trim(),
  );
  const areEqual = new Set(rest).size === 1;
  const isSilent = questions.some(
    ({ response, calls = [], error }) => error !== null || textWithCalls(response, calls).trim() === "",
  );
  const echoes = isEcho && areEqual;
  return { questions, answered: !isSilent && (echoes || !areEqual), echoes };
}
