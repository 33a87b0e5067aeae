import { Message, type Conversation } from "@astra-rl/lm";
import { checkCount, FailedMessage } from "../tree/index.js";
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
