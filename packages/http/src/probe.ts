import type { Sampling } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/base";
import type { Server, ServerRequest } from "./server.js";

/** Observed behavior of a server; nothing is assumed from its name. */
export interface ServerTraits {
  /** The parameter that limits an answer. */
  limit: string;
  /** Whether answers respect it; null if the server reports no token counts. */
  limitHolds: boolean | null;
  /** Parameters that it rejects, and that are not sent. */
  omitted: readonly string[];
  /** Those of them that would have changed an answer. */
  missed: readonly string[];
  /** Parameters that it accepts without the expected effect. */
  ignored: readonly string[];
  /** The share of an answer's tokens with log-probabilities. */
  logprobs: number;
  /** Whether an equal seed gave an equal answer, and another seed another one; null if both were equal. */
  repeats: boolean | null;
  /** The name that the server gives its model. */
  model: string | null;
}

export const QUESTIONS = {
  /** The answer is longer than the probe allows, and different each time. */
  varied: "List one hundred random words.",
  short: 'Say "yes" and nothing else.',
  repetitive: 'Write the word "yes" one hundred times.',
} as const;

/** A request of the probe: the question, the seed, and changed sampling settings. */
export type ProbeRequest = Partial<Sampling> & { question: string; seed: number };

/** Few: a run should not take minutes to report an unreachable server. */
export const PROBE_ATTEMPTS = 3;

/** Never omitted: a request requires them. */
const NEEDED: readonly string[] = ["model", "messages", "prompt", "system"];

/**
 * Probes a server with a few short requests: which parameters it accepts and which it ignores, whether its token limit
 * works, whether it gives log-probabilities, and whether a seed repeats an answer.
 *
 * @param requestOf the request for what is known of the server so far
 * @throws UsageError if it does not answer, or if a budget in tokens cannot be enforced
 */
export async function probeServer(
  server: Server,
  requestOf: (traits: Pick<ServerTraits, "limit" | "omitted">, asked: ProbeRequest) => ServerRequest,
): Promise<ServerTraits> {
  const { dialect } = server;
  const { limits, scores } = dialect;
  const known = { limit: limits[0], omitted: [] as string[] };
  const isNeutral = (name: string, body: Asked["body"]) => dialect.isNeutral(name, body[name]);
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
  const refusedNow = () => refusedBy(first, (name) => isNeutral(name, first.body), limits.at(-1)!);
  for (let refused = refusedNow(); refused.length > 0; refused = refusedNow()) {
    if (refused[0] === known.limit) known.limit = limits[1]!;
    else {
      known.omitted.push(...refused);
      missed.push(...refused.filter((name) => !isNeutral(name, first.body)));
    }
    first = await ask(1);
  }
  let holds = keepsLimit(first);
  const another = limits.find((name) => name !== known.limit);
  if (holds === false && another !== undefined) {
    const before = known.limit;
    known.limit = another;
    const other = await ask(1);
    if (keepsLimit(other) === true) [first, holds] = [other, true];
    else known.limit = before;
  }
  const { answer } = first.reply;
  if (answer === undefined) {
    throw new UsageError(
      "no-answer",
      `${server.where}: no answer from ${server.baseURL}: ${first.reply.failure.message}; check baseURL and model, and ` +
        "that the server is running",
    );
  }
  const { tokens, dollars } = server.options.budget;
  if (holds === false && (tokens !== undefined || dollars !== undefined)) {
    throw new UsageError(
      "unenforceable-budget",
      `${server.where}.budget: the server does not respect ${known.limit} (${answer.usage!.output} tokens, ` +
        `${first.most.output} ` +
        "allowed), so a limit of tokens or dollars cannot be enforced; limit calls instead",
    );
  }
  const scored = scores === null ? undefined : (await ask(1, {}, scores)).reply.answer;
  const [again, other] = [scored ?? (await ask(1)).reply.answer, (await ask(2)).reply.answer];
  const isEqual = again?.text === answer.text;
  const isVaried = other?.text !== answer.text;
  const textOf = async (seed: number, changed: Partial<ProbeRequest>) =>
    (await ask(seed, changed)).reply.answer?.text;
  // Whether each extension has its expected effect; only for non-neutral ones.
  const effects: Record<string, () => Promise<boolean>> = {
    // With one token to choose from, the seed has no effect.
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
    if (name in first.body && !isNeutral(name, first.body) && !(await hasEffect())) ignored.push(name);
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

/**
 * The parameter that the server names when it rejects a request; if it names none, all neutral ones that a server may
 * not support; empty if it rejects none.
 *
 * @param lastLimit never omitted: without it an answer has no limit
 */
function refusedBy(
  { reply, body }: Asked,
  isNeutral: (name: string) => boolean,
  lastLimit: string,
): string[] {
  if (reply.failure === undefined) return [];
  const { cause, message } = reply.failure;
  if (cause !== "status" || !/status (400|422)\b/.test(message)) return [];
  const names = Object.keys(body).filter((name) => name !== lastLimit && !NEEDED.includes(name));
  // "max_tokens is not supported, use max_completion_tokens" names both.
  const named = names.filter((name) => new RegExp(`\\b${name}\\b`).test(message));
  const [first] = named.sort((a, b) => message.indexOf(a) - message.indexOf(b));
  return first === undefined ? names.filter(isNeutral) : [first];
}

function keepsLimit({ reply, most }: Asked): boolean | null {
  const { answer } = reply;
  const usage = answer?.usage ?? null;
  return usage === null ? null : usage.output <= most.output;
}
