import { describeValue, UsageError } from "@astra-rl/base";

/**
 * What a tester is to make the target do, such as a behaviour of a benchmark. The tester and the judge of its goal read it;
 * the target never does.
 */
export interface Goal {
  /** Names the goal in records and reports; unique within a set of goals. */
  readonly id: string;
  readonly text: string;
  readonly category?: string;
  /** A document that belongs to the goal, such as HarmBench's `ContextString`; read after the text. */
  readonly context?: string;
}

/** In a text that a tester or a judge reads, what the goal replaces. */
export const GOAL_PLACEHOLDER = "{goal}";

/** What is read in place of `{goal}`: the text, then the document, if there is one. */
export const goalText = ({ text, context }: Goal): string =>
  context === undefined ? text : `${text}\n\n${context}`;

/** Goals by content, least recently used first: equal goals are one object, so that equal conversations are one, too. */
const known = new Map<string, Goal>();
const MOST_KNOWN = 4096;

/**
 * A goal with these fields: the same object for equal fields, as long as it is cached.
 *
 * @throws UsageError unless id and text are texts with content, and the others texts
 */
export function goalOf({ id, text, category, context }: Goal): Goal {
  for (const [name, value] of Object.entries({ id, text, category, context })) {
    if (typeof value === "string" && value.trim() !== "") continue;
    if (value === undefined && name !== "id" && name !== "text") continue;
    throw new UsageError("invalid-goal", `goal: ${name} must be a text, got ${describeValue(value)}`);
  }
  const goal = Object.freeze({
    id,
    text,
    ...(category === undefined ? {} : { category }),
    ...(context === undefined ? {} : { context }),
  });
  const key = JSON.stringify(goal);
  const made = known.get(key) ?? goal;
  known.delete(key);
  known.set(key, made);
  if (known.size > MOST_KNOWN) known.delete(known.keys().next().value!);
  return made;
}
