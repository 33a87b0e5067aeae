import type { Sampling } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/torch";
import { NEUTRAL } from "./neutral.js";
import type { Server, ServerRequest } from "./server.js";

export const LIMITS = ["max_tokens", "max_completion_tokens"] as const;

/** Observed behavior of a server; nothing is assumed from its name. */
export interface ServerTraits {
  /** The parameter that limits an answer. */
  limit: (typeof LIMITS)[number];
  /** Whether answers keep to it; null where the server counts no tokens. */
  limitHolds: boolean | null;
  /** Parameters that it rejects, and that are not sent. */
  omitted: readonly string[];
  /** Those of them that would have changed an answer. */
  missed: readonly string[];
  /** Parameters that it accepts and that had no effect where they must have one. */
  ignored: readonly string[];
  /** The share of an answer's tokens with log-probabilities. */
  logprobs: number;
  /** Whether an equal seed gave an equal answer, and another seed another one; null if both were equal. */
  repeats: boolean | null;
  /** The name that the server gives its model. */
  model: string | null;
}

export const QUESTIONS = {
  /** Its answer is longer than the probe allows, and another one each time. */
  varied: "List one hundred random words.",
  short: 'Say "yes" and nothing else.',
  repetitive: 'Write the word "yes" one hundred times.',
} as const;

/** A request of the probe: the question, the seed, and what it changes of the sampling. */
export type ProbeRequest = Partial<Sampling> & { question: string; seed: number };

/** Few: a run should not take minutes to say that a server is not there. */
export const PROBE_ATTEMPTS = 3;

/** Never left out: without them a request makes no sense, or its answer has no limit. */
const NEEDED: readonly string[] = ["model", "messages", "prompt", "max_completion_tokens"];

/**
 * Asks a server a few short questions: which parameters it takes and which it ignores, whether its limit of tokens holds,
 * whether it gives log-probabilities, and whether a seed repeats an answer.
 *
 * @param requestOf the request for what is known of the server so far
 * @throws UsageError where it does not answer, or where a budget in tokens cannot hold
 */
export async function probeServer(
  server: Server,
  requestOf: (traits: Pick<ServerTraits, "limit" | "omitted">, asked: ProbeRequest) => ServerRequest,
): Promise<ServerTraits> {
  const known: { limit: ServerTraits["limit"]; omitted: string[] } = { limit: "max_tokens", omitted: [] };
  const ask = async (seed: number, changed: Partial<ProbeRequest> = {}, extra: object = {}) => {
    const { body, most } = requestOf(known, { question: QUESTIONS.varied, seed, ...changed });
    return {
      reply: await server.ask({ body: { ...body, ...extra }, most, attempts: PROBE_ATTEMPTS }),
      body,
      most,
    };
  };
  let first = await ask(1);
  const missed: string[] = [];
  for (let refused = refusedBy(first); refused.length > 0; refused = refusedBy(first)) {
    if (refused[0] === "max_tokens") known.limit = "max_completion_tokens";
    else {
      known.omitted.push(...refused);
      missed.push(...refused.filter((name) => !isNeutral(name, first)));
    }
    first = await ask(1);
  }
  let holds = keepsLimit(first);
  if (holds === false) {
    const before = known.limit;
    known.limit = LIMITS.find((name) => name !== before)!;
    const other = await ask(1);
    if (keepsLimit(other) === true) [first, holds] = [other, true];
    else known.limit = before;
  }
  const { answer } = first.reply;
  if (answer === undefined) {
    throw new UsageError(
      `${server.where}: no answer from ${server.options.baseURL}: ${first.reply.failure.message}; check baseURL and model, and ` +
        "that the server is running",
    );
  }
  const { tokens, dollars } = server.options.budget;
  if (holds === false && (tokens !== undefined || dollars !== undefined)) {
    throw new UsageError(
      `${server.where}.budget: the server does not keep to ${known.limit} (${answer.usage!.output} tokens, ${first.most.output} ` +
        "allowed), so that a limit of tokens or dollars cannot hold; limit calls instead",
    );
  }
  const scores = server.options.api === "chat" ? { logprobs: true } : { logprobs: 1 };
  const scored = (await ask(1, {}, scores)).reply.answer;
  const [again, other] = [scored ?? (await ask(1)).reply.answer, (await ask(2)).reply.answer];
  const isEqual = again?.text === answer.text;
  const isVaried = other?.text !== answer.text;
  const textOf = async (seed: number, changed: Partial<ProbeRequest>) =>
    (await ask(seed, changed)).reply.answer?.text;
  // Whether each extension has an effect that it must have; only for those that change something.
  const effects: Record<string, () => Promise<boolean>> = {
    // One token to choose from leaves nothing to the seed.
    top_k: async () => !isVaried || (await textOf(1, { topK: 1 })) === (await textOf(2, { topK: 1 })),
    min_tokens: async () => {
      const least = first.most.output;
      const { reply } = await ask(1, { question: QUESTIONS.short, minNewTokens: least });
      return (reply.answer?.usage?.output ?? least) >= least;
    },
    repetition_penalty: async () => {
      const greedy = { question: QUESTIONS.repetitive, greedy: true };
      const plain = await textOf(1, { ...greedy, repetitionPenalty: 1 });
      return plain !== (await textOf(1, { ...greedy, repetitionPenalty: 2 }));
    },
  };
  const ignored: string[] = [];
  for (const [name, hasEffect] of Object.entries(effects)) {
    if (name in first.body && !isNeutral(name, first) && !(await hasEffect())) ignored.push(name);
  }
  return {
    ...known,
    missed,
    ignored,
    limitHolds: holds,
    logprobs: Math.min(1, (scored?.logprobs ?? 0) / Math.max(1, scored?.usage?.output ?? 1)),
    repeats: isEqual && !isVaried ? null : isEqual,
    model: server.model,
  };
}

type Asked = {
  reply: Awaited<ReturnType<Server["ask"]>>;
  body: Record<string, unknown>;
  most: { output: number };
};

const isNeutral = (name: string, { body }: Asked) =>
  NEUTRAL[name] !== undefined && body[name] === NEUTRAL[name];

/**
 * The parameter that the server names when it refuses a request; where it names none, all that a server may not know and that
 * change nothing; empty if it refuses none.
 */
function refusedBy(asked: Asked): string[] {
  const { reply, body } = asked;
  if (reply.failure === undefined) return [];
  const { cause, message } = reply.failure;
  if (cause !== "status" || !/status (400|422)\b/.test(message)) return [];
  const names = Object.keys(body).filter((name) => !NEEDED.includes(name));
  // "max_tokens is not supported, use max_completion_tokens" names both.
  const named = names.filter((name) => new RegExp(`\\b${name}\\b`).test(message));
  const [first] = named.sort((a, b) => message.indexOf(a) - message.indexOf(b));
  return first === undefined ? names.filter((name) => isNeutral(name, asked)) : [first];
}

function keepsLimit({ reply, most }: Asked): boolean | null {
  const { answer } = reply;
  const usage = answer?.usage ?? null;
  return usage === null ? null : usage.output <= most.output;
}
