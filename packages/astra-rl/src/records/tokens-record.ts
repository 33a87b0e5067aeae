import { z } from "zod";
import type { Conversation, Message, Model, Node } from "../core/index.js";

const ids = z.array(z.int().nonnegative());
const end = z.int().nonnegative().optional();

export const tokensSchema = z.looseObject({
  tester: z
    .looseObject({
      /** What it had read before the probe. */
      context: ids,
      /** The probe, as it stays in the conversation. */
      probe: ids,
      /** The id that ended the probe and is no part of its text; absent where there was none. */
      end,
    })
    .optional(),
  target: z
    .looseObject({
      /** What it had read before the probe and what is put around it. */
      context: ids,
      /** What it then read: the probe, and what is put around it. */
      heard: ids,
      /** The probe alone. */
      probe: ids,
      response: ids,
      end,
    })
    .optional(),
  /** Whether a method returned something of its own in place of what the models sampled or had read; absent where not. */
  edited: z.literal(true).optional(),
});

/** Token ids behind a turn, each model's in its own vocabulary. */
export type TokensRecord = z.infer<typeof tokensSchema>;

/** A model that tells ids. */
type Reader = Model & Required<Pick<Model, "reading" | "idsOf">>;

/**
 * The ids behind a turn, as the models read and drew them: all of it follows from the turn's values.
 *
 * @param models of each role, those that may have spoken
 * @param promptFor what the target reads before it responds, for a response that somebody else gave
 */
export function tokensRecord(
  node: Node,
  models: { readonly tester: readonly Model[]; readonly target: readonly Model[] },
  promptFor: (context: Conversation, probe: Message) => Conversation,
): TokensRecord | null {
  const { context, probe, response, failure } = node;
  const tester = readerOf(models.tester, probe, context);
  const target = readerOf(models.target, response, context);
  if (tester === null && target === null) return null;
  const record: TokensRecord = {};
  if (tester !== null && failure?.stage !== "tester") {
    const { context: before } = tester.reading(node.spokenAfter, probe);
    record.tester = { context: [...before], ...said("probe", tester.idsOf(probe)) };
  }
  if (target !== null && failure?.stage !== "target" && failure?.stage !== "tester") {
    const {
      context: before,
      heard,
      body,
    } = target.reading(response.sampled?.after ?? promptFor(context, probe), probe);
    record.target = {
      context: [...before],
      heard: [...heard],
      probe: heard.slice(...body),
      ...said("response", target.idsOf(response)),
    };
  }
  if (isEdited(node)) record.edited = true;
  return record;
}

/**
 * Whether something here is not what the models sampled and read before: an utterance that none of them drew, or a context
 * that is not what the parent's turn left, which a method returned in its place.
 */
export function isEdited({ context, probe, response, failure, spokenAfter }: Node): boolean {
  if (failure?.stage === "tester") return !isGrown(context);
  if (probe.sampled === null || spokenAfter !== context || !isGrown(context)) return true;
  if (failure?.stage === "target") return false;
  return response.sampled === null || !isAsked(response.sampled.after, context, probe);
}

/** Whether a context is a prompt, or what stood before its last probe, with that probe and a response that were sampled. */
function isGrown(context: Conversation): boolean {
  const messages = context.messages();
  const at = messages.findLastIndex(({ from }) => from === "tester");
  if (at < 0) return messages.every(({ from }) => from !== "target");
  const [probe, ...later] = messages.slice(at);
  const before = context.before(probe!)!;
  const response = later.find(({ from }) => from === "target");
  return without(probe!.sampled?.after) === without(before) && (response?.sampled ?? null) !== null;
}

/** Whether a target was asked what stands before a probe, or nothing, and the probe. */
function isAsked(prompt: Conversation, context: Conversation, probe: Message): boolean {
  const before = prompt.before(probe);
  if (before === null) return false;
  return without(before) === without(context) || (before.parent === null && before.last.text === "");
}

/** A conversation without what is put around its end. */
function without(conversation: Conversation | undefined): Conversation | undefined {
  let at = conversation;
  while (at !== undefined && at.parent !== null && at.last.from === "around") at = at.parent;
  return at;
}

/** Of the models in a role, the one that said a message, or else the last one of the conversation. */
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
