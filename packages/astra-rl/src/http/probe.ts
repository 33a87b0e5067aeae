import { UsageError } from "@astra-rl/torch";
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
  /** The share of an answer's tokens with log-probabilities. */
  logprobs: number;
  /** Whether an equal seed gave an equal answer, and another seed another one; null if both were equal. */
  repeats: boolean | null;
  /** The name that the server gives its model. */
  model: string | null;
}

/** Whoever starts a run should not wait minutes for a server that is not there. */
const ATTEMPTS = 3;

/** Never left out: without them a request makes no sense, or its answer has no limit. */
const NEEDED: readonly string[] = ["model", "messages", "prompt", "max_completion_tokens"];

/**
 * Asks a server a few short questions: which parameters it takes, whether its limit of tokens holds, whether it gives
 * log-probabilities, and whether a seed repeats an answer.
 *
 * @param requestOf the request for what is known of the server so far
 * @throws UsageError where it does not answer, or where a budget in tokens cannot hold
 */
export async function probeServer(
  server: Server,
  requestOf: (traits: Pick<ServerTraits, "limit" | "omitted">, seed: number) => ServerRequest,
): Promise<ServerTraits> {
  const known: { limit: ServerTraits["limit"]; omitted: string[] } = { limit: "max_tokens", omitted: [] };
  const ask = async (seed: number, extra: Record<string, unknown> = {}) => {
    const { body, most } = requestOf(known, seed);
    return { reply: await server.ask({ body: { ...body, ...extra }, most, attempts: ATTEMPTS }), body, most };
  };
  let first = await ask(1);
  for (let refused = refusedBy(first); refused !== null; refused = refusedBy(first)) {
    if (refused === "max_tokens") known.limit = "max_completion_tokens";
    else known.omitted.push(refused);
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
  const scored = (await ask(1, scores)).reply.answer;
  const [again, other] = [scored ?? (await ask(1)).reply.answer, (await ask(2)).reply.answer];
  const isEqual = again?.text === answer.text;
  return {
    ...known,
    limitHolds: holds,
    logprobs: Math.min(1, (scored?.logprobs ?? 0) / Math.max(1, scored?.usage?.output ?? 1)),
    repeats: isEqual && other?.text === answer.text ? null : isEqual,
    model: server.model,
  };
}

type Asked = {
  reply: Awaited<ReturnType<Server["ask"]>>;
  body: Record<string, unknown>;
  most: { output: number };
};

/** The parameter that the server names when it refuses a request; null if it refuses none. */
function refusedBy({ reply, body }: Asked): string | null {
  if (reply.failure === undefined) return null;
  const { cause, message } = reply.failure;
  if (cause !== "status" || !/status (400|422)\b/.test(message)) return null;
  const names = Object.keys(body).filter((name) => !NEEDED.includes(name));
  // "max_tokens is not supported, use max_completion_tokens" names both.
  const named = names.filter((name) => new RegExp(`\\b${name}\\b`).test(message));
  return named.sort((a, b) => message.indexOf(a) - message.indexOf(b))[0] ?? null;
}

function keepsLimit({ reply, most }: Asked): boolean | null {
  const { answer } = reply;
  const usage = answer?.usage ?? null;
  return usage === null ? null : usage.output <= most.output;
}
