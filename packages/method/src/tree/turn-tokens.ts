import type { Conversation, Message } from "@astra-rl/lm";
import type { TokensRecord } from "@astra-rl/records";
import type { Model } from "../models/index.js";
import { logprobsOf, type Node } from "./node.js";

/** A model that exposes token ids. */
type Reader = Model & Required<Pick<Model, "reading" | "idsOf">>;

/**
 * The token ids of a turn as the models read and sampled them, derived from the turn's values alone.
 *
 * @param models the possible models of each role
 * @param promptFor the target's input, for a response that no target generated
 * @param isTeller whether the target itself told how likely the probe is
 */
export function tokensRecord(
  node: Node,
  models: { readonly tester: readonly Model[]; readonly target: readonly Model[] },
  promptFor: (context: Conversation, probe: Message) => Conversation,
  { isTeller = true }: { isTeller?: boolean } = {},
): TokensRecord | null {
  const { context, probe, response, failure } = node;
  const tester = readerOf(models.tester, probe, context);
  const target = readerOf(models.target, response, context);
  if (tester === null && target === null) return null;
  const record: TokensRecord = {};
  if (tester !== null && failure?.stage !== "tester") {
    const { context: before } = tester.reading(node.probeContext, probe);
    record.tester = { context: [...before], ...said("probe", tester.idsOf(probe)) };
  }
  if (target !== null && failure?.stage !== "target" && failure?.stage !== "tester") {
    const {
      context: before,
      heard,
      body,
    } = target.reading(response.sampled?.after ?? promptFor(context, probe), probe);
    const asked = heard.slice(...body);
    record.target = {
      context: [...before],
      heard: [...heard],
      probe: asked,
      ...(isTeller ? shading(target, asked, node) : {}),
      ...said("response", target.idsOf(response)),
    };
  }
  if (isEdited(node)) record.edited = true;
  return record;
}

/** The probe's tokens with their log-probabilities, where those are known token by token. */
function shading(target: Reader, ids: readonly number[], { likelihood }: Node) {
  const logprobs = likelihood === null ? null : logprobsOf(likelihood);
  if (logprobs?.length !== ids.length || target.spell === undefined) return {};
  return { pieces: target.spell(ids), logprobs: [...logprobs] };
}

/**
 * Whether an overridden method changed the turn: a message that no model sampled, or a context that does not follow
 * from the parent's turn.
 */
export function isEdited({ context, probe, response, failure, probeContext }: Node): boolean {
  if (failure?.stage === "tester") return !isGrown(context);
  if (probe.sampled === null || probeContext !== context || !isGrown(context)) return true;
  if (failure?.stage === "target") return false;
  return response.sampled === null || !isAsked(response.sampled.after, context, probe);
}

/** Whether a context is a prompt, or the context before its last probe plus that probe and a response, both sampled. */
function isGrown(context: Conversation): boolean {
  const messages = context.messages();
  const at = messages.findLastIndex(({ from }) => from === "tester");
  if (at < 0) return messages.every(({ from }) => from !== "target");
  const [probe, ...later] = messages.slice(at);
  const before = context.before(probe!)!;
  const response = later.find(({ from }) => from === "target");
  return without(probe!.sampled?.after) === without(before) && (response?.sampled ?? null) !== null;
}

/** Whether the target's prompt is the probe, preceded by its context or by nothing. */
function isAsked(prompt: Conversation, context: Conversation, probe: Message): boolean {
  const before = prompt.before(probe);
  if (before === null) return false;
  return (
    without(before) === without(context.withGoal(null)) || (before.parent === null && before.last.text === "")
  );
}

/** A conversation without the trailing template messages. */
function without(conversation: Conversation | undefined): Conversation | undefined {
  let at = conversation;
  while (at !== undefined && at.parent !== null && at.last.from === "around") at = at.parent;
  return at;
}

/** Among the models of a role, the one that generated a message, or else the last one used in the conversation. */
function readerOf(
  [first, ...others]: readonly Model[],
  message: Message,
  context: Conversation,
): Reader | null {
  if (first === undefined) return null;
  const by =
    message.sampled?.by ??
    context.messages().findLast(({ from, sampled }) => from === first.role && sampled !== null)?.sampled?.by;
  const model = others.find(({ name }) => name === by) ?? first;
  return model.reading === undefined || model.idsOf === undefined ? null : (model as Reader);
}

/** An utterance's ids that stay in the conversation, and the silent one that ended it, where there was one. */
function said<Name extends string>(name: Name, { ids, kept }: { ids: readonly number[]; kept: number }) {
  return { [name]: ids.slice(0, kept), ...(ids.length > kept ? { end: ids[kept]! } : {}) } as {
    [key in Name]: number[];
  } & { end?: number };
}
