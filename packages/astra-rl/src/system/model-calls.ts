import { UsageError, type Tensor } from "@astra-rl/torch";
import {
  checkCount,
  FailedMessage,
  Message,
  noteSaid,
  TokenTable,
  type Conversation,
  type GenerateOptions,
  type Model,
  type NodeKey,
} from "../core/index.js";

/** The next messages of a model; a failed row becomes a FailedMessage. */
export async function nextMessages(
  model: Model,
  conversations: readonly Conversation[],
  options: GenerateOptions,
): Promise<Message[]> {
  const said = await model.generate(conversations, options);
  checkCount(`${model.name}.generate`, said, conversations.length);
  const messages = said.map((each) => (each instanceof Message ? each : new FailedMessage(model.role, each)));
  noteSaid(options.keys, messages);
  return messages;
}

/** Log-probabilities of each message after its context, without gradients. @param where begins the message of an error */
export async function messageLogprobs(
  where: string,
  model: Model,
  turns: {
    contexts: readonly Conversation[];
    messages: readonly Message[];
    keys?: readonly NodeKey[] | undefined;
    device: Tensor["device"] | undefined;
  },
): Promise<TokenTable> {
  if (model.logprobs === undefined) {
    throw new UsageError(
      `${where}: ${model.name} cannot tell how likely a text is; give a model as the likelihood role`,
    );
  }
  return TokenTable.ofRows(await model.logprobs(turns.contexts, turns.messages, turns.keys), turns.device);
}
