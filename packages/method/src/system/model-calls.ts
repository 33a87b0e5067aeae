import { UsageError } from "@astra-rl/base";
import { Message, type Conversation } from "@astra-rl/lm";
import { checkCount, FailedMessage, type NodeKey } from "../tree/index.js";
import type { GenerateOptions, Model } from "../models/index.js";

/** The next messages of a model; a failed row becomes a FailedMessage. */
export async function nextMessages(
  model: Model,
  conversations: readonly Conversation[],
  options: GenerateOptions,
): Promise<Message[]> {
  const said = await model.generate(conversations, options);
  checkCount(`${model.name}.generate`, said, conversations.length);
  return said.map((each) => (each instanceof Message ? each : new FailedMessage(model.role, each)));
}

/**
 * Log-probabilities of each message after its conversation.
 *
 * @throws UsageError for a model that has none
 */
export async function logprobsOf(
  model: Model,
  where: string,
  conversations: readonly Conversation[],
  messages: readonly Message[],
  keys: readonly NodeKey[] | undefined,
): ReturnType<NonNullable<Model["logprobs"]>> {
  if (model.logprobs === undefined) {
    throw new UsageError(
      "no-likelihood",
      `${where}: ${model.name} cannot compute likelihoods; give a model in the role likelihood`,
    );
  }
  return model.logprobs(conversations, messages, keys);
}
