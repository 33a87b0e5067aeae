import { UsageError } from "@astra-rl/base";
import { Conversation, type Message } from "@astra-rl/lm";
import { attemptRows, FailedMessage, type Model, type NodeKey, type System } from "@astra-rl/method";
import type { Failure } from "@astra-rl/records";
import type { Prompt } from "../datasets/index.js";

/** What the target is asked without a tester. */
export interface AskedTarget {
  context: Conversation;
  /** The user's message. */
  probe: Message;
  key: NodeKey;
  /** Asked itself, instead of the target that the system chooses for the key. */
  model?: Model | undefined;
}

/**
 * The state of a prompt.
 *
 * @param key the section that asks for it, such as "evaluation.benign"
 * @throws UsageError for a system whose states are no conversations
 */
export function conversationOfPrompt(system: System, prompt: Prompt, key: string): Conversation {
  const state: unknown = system.stateOf(prompt);
  if (state instanceof Conversation) return state;
  throw new UsageError(
    "not-a-conversation",
    `${key}: the states of this system are no conversations, so its target cannot be asked without a tester; leave it out`,
  );
}

/** The target's answers, by the system's own `promptForTarget` and `rolloutPromptWithTarget`; failures are data. */
export async function answersTo(
  system: System,
  asked: readonly AskedTarget[],
): Promise<(Message | Failure)[]> {
  const answers: (Message | Failure)[] = [];
  for (const model of new Set(asked.map((each) => each.model))) {
    const rows = asked.flatMap((each, row) => (each.model === model ? [row] : []));
    const own = await answersOf(
      system,
      rows.map((row) => asked[row]!),
      model,
    );
    for (const [at, row] of rows.entries()) answers[row] = own[at]!;
  }
  return answers;
}

async function answersOf(
  system: System,
  asked: readonly AskedTarget[],
  model: Model | undefined,
): Promise<(Message | Failure)[]> {
  const ask = async (rows: readonly number[]) => {
    const prompts = rows.map((row) => system.checked.promptForTarget(asked[row]!.context, asked[row]!.probe));
    const keys = rows.map((row) => asked[row]!.key);
    return model === undefined
      ? system.checked.rolloutPromptWithTarget(prompts, keys)
      : model.generate(prompts as Conversation[], { keys });
  };
  const outcomes = await attemptRows<unknown>("target", asked.length, ask, system.retry);
  return outcomes.map(({ value, failure }) => {
    if (failure !== null) return failure;
    return value instanceof FailedMessage ? value.failure : (value as Message | Failure);
  });
}
