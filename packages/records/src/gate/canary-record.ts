import { z } from "zod";

/** Plain questions that the target was asked, each without a tester, and what it answered. */
export const canarySchema = z.looseObject({
  questions: z.array(
    z.looseObject({
      question: z.string(),
      /** Empty without an answer. */
      response: z.string(),
      /** The error as "stage: message"; null if there was none. */
      error: z.string().nullable(),
    }),
  ),
  /** Whether each question has an answer, and the answers differ. */
  answered: z.boolean(),
  /** Whether the answers are the questions, apart from what is equal in all of them. */
  echoes: z.boolean(),
});

export type CanaryRecord = z.infer<typeof canarySchema>;

const words = (text: string): string => (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).join(" ");

/**
 * Judges the answers to plain questions. A target that echoes gives back each question, possibly with a text around it that is
 * the same each time; a dead one says nothing, or the same to all.
 *
 * @param questions at least two different ones
 */
export function canaryOf(questions: CanaryRecord["questions"]): CanaryRecord {
  const said = questions.map(({ question, response }) => ({
    question: words(question),
    answer: words(response),
  }));
  const isEcho = said.every(
    ({ question, answer }) => answer !== "" && ` ${answer} `.includes(` ${question} `),
  );
  const rest = said.map(({ question, answer }) => (isEcho ? answer.replaceAll(question, "") : answer).trim());
  const areEqual = new Set(rest).size === 1;
  const isSilent = questions.some(({ response, error }) => error !== null || response.trim() === "");
  const echoes = isEcho && areEqual;
  return { questions, answered: !isSilent && (echoes || !areEqual), echoes };
}
