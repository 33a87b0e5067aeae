import { createHash } from "node:crypto";
import { resolveSampling, type Sampling } from "@astra-rl/lm";
import { UsageError, type Device, type Tensor } from "@astra-rl/torch";
import {
  Conversation,
  Message,
  NotedMessage,
  type Failure,
  type GenerateOptions,
  type Model,
  type NodeKey,
  type Tester,
  type TesterOutput,
  type Work,
} from "../core/index.js";
import { parseOptions } from "../options/index.js";
import type { Usage } from "./answer.js";
import type { Cost } from "./budget.js";
import { chatMessages, plainText } from "./conversation.js";
import type { AnswerJournal } from "./journal.js";
import { serverOptions } from "./options.js";
import { probeServer, type ServerTraits } from "./probe.js";
import { Server, type ServerSurroundings } from "./server.js";
import type { z } from "zod";

export interface HTTPModelOptions {
  server: z.input<typeof serverOptions>;
  sampling: Sampling;
  /** Prefix of error messages. Default: the model's name. */
  where?: string;
}

/** Asks for more tokens than the probe allows. */
const PROBE = "Count from one to one hundred, in words.";

/** Tokens that a chat template may add to each message. */
const AROUND_MESSAGE = 32;

/**
 * A model behind an OpenAI-compatible API. Rows fail one by one; a row that failed after its retries is a Failure, with its
 * cause. Its messages have no token ids, so that other models encode them as texts.
 *
 * Equal keys and conversations give equal messages within a run: answers are kept in the run's journal. `work` counts the
 * server's tokens, where it reports them.
 */
export class HTTPModel implements Model {
  readonly tellsLikelihood = false;
  readonly work: Work = { read: 0, generated: 0 };
  readonly server: Server;
  readonly #sampling: Required<Sampling>;
  #traits: Promise<ServerTraits> | null = null;

  /** @throws UsageError for invalid options, sampling that no server offers, and environment variables that are not set */
  constructor(
    readonly name: string,
    readonly role: "tester" | "target",
    { server, sampling, where = name }: HTTPModelOptions,
    surroundings: ServerSurroundings = {},
  ) {
    const options = parseOptions(where, serverOptions, server);
    this.#sampling = resolveSampling(sampling);
    if (this.#sampling.keepStopString) {
      throw new UsageError(
        `generation.${role}.keepStopString: servers leave out the text that ended a message; set it to false for ${where}`,
      );
    }
    this.server = new Server(where, options, surroundings);
  }

  /** Probes the server, once; at the latest before the first message. */
  probe(): Promise<ServerTraits> {
    return (this.#traits ??= probeServer(this.server, (traits, seed) => {
      return this.#request(
        Conversation.of(PROBE),
        seed,
        { ...this.#sampling, maxNewTokens: 8, minNewTokens: 0 },
        traits,
      );
    }));
  }

  /**
   * Keeps answers in a journal, and counts what it says was spent. Calls made before are added to it.
   *
   * @param journal the caller closes it after the model
   */
  async keepAnswers(journal: AnswerJournal): Promise<void> {
    const { server } = this;
    const before = server.budget.spent;
    server.budget.add(journal.spent(server.where));
    await journal.charge(server.where, before);
    server.journal = journal;
  }

  /** What was spent so far, by earlier processes of the run, too. */
  get spent(): Cost & { dollars: number | null } {
    const { budget } = this.server;
    return { ...budget.spent, dollars: budget.dollars(budget.spent) };
  }

  async generate(
    conversations: readonly Conversation[],
    { keys }: GenerateOptions,
  ): Promise<(Message | Failure)[]> {
    const traits = await this.probe();
    const rows = conversations.map((conversation, row) => this.#answer(conversation, keys[row]!, traits));
    // Calls in flight end before an error is thrown, so that their answers are kept.
    const settled = await Promise.allSettled(rows);
    return settled.map((row) => {
      if (row.status === "rejected") throw row.reason;
      return row.value;
    });
  }

  release(): void {}

  dispose(): void {
    this.server.dispose();
  }

  async #answer(
    conversation: Conversation,
    { seed, episode, node, draw = 0 }: NodeKey,
    traits: ServerTraits,
  ): Promise<Message | Failure> {
    const { server, name, role } = this;
    const key = [seed, episode, node, draw];
    const { body, most } = this.#request(conversation, seedOf(key), this.#sampling, traits);
    const { messages, prompt } = body;
    // What the server takes may differ after a restart; what was asked does not.
    const identity = digest([
      name,
      role,
      server.options.baseURL,
      server.options.model,
      key,
      messages ?? prompt,
      this.#sampling,
    ]);
    const reply = server.journal?.reply(identity) ?? (await server.ask({ body, most, identity }));
    this.#count(reply.answer === undefined ? reply.usage : reply.answer.usage);
    if (reply.answer === undefined) return { ...reply.failure, stage: role };
    const { text, note } = reply.answer;
    return note === null ? new Message(role, text) : new NotedMessage(role, text, note);
  }

  #count(usage: Usage | null): void {
    if (usage === null) return;
    this.work.read += usage.input;
    this.work.generated += usage.output;
  }

  /** Every sampling value is sent: a server's own defaults may come from the model's files. */
  #request(
    conversation: Conversation,
    seed: number,
    sampling: Required<Sampling>,
    { limit, omitted }: Pick<ServerTraits, "limit" | "omitted">,
  ): { body: Record<string, unknown>; most: Usage } {
    const { options } = this.server;
    const { maxNewTokens, minNewTokens, temperature, topK, topP, repetitionPenalty, greedy, stopStrings } =
      sampling;
    const text =
      options.api === "chat"
        ? { messages: chatMessages(conversation, this.role, options.system ?? null) }
        : { prompt: plainText(conversation, this.role, options) };
    const given: Record<string, unknown> = {
      model: options.model,
      ...text,
      [limit]: maxNewTokens,
      temperature: greedy ? 0 : temperature,
      top_p: greedy ? 1 : topP,
      seed,
      ...(stopStrings.length > 0 ? { stop: stopStrings } : {}),
      // Extensions, sent only where they would change something.
      ...(topK > 0 && !greedy ? { top_k: topK } : {}),
      ...(minNewTokens > 0 ? { min_tokens: minNewTokens } : {}),
      ...(repetitionPenalty !== 1 ? { repetition_penalty: repetitionPenalty } : {}),
    };
    const entries = Object.entries(given).filter(([name]) => !omitted.includes(name));
    return { body: Object.fromEntries(entries), most: { input: mostTokens(text), output: maxNewTokens } };
  }
}

/** A tester behind a server: it speaks, but has no weights to train. */
export class HTTPTester extends HTTPModel implements Tester {
  readonly device: Device = "cpu";
  readonly tellsValues = false;

  constructor(name: string, options: HTTPModelOptions, surroundings: ServerSurroundings = {}) {
    super(name, "tester", options, surroundings);
  }

  parameters(): Iterable<Tensor> {
    return [];
  }

  valueParameters(): Iterable<Tensor> {
    return [];
  }

  forward(): TesterOutput {
    throw this.#noWeights("tells no log-probabilities");
  }

  async save(): Promise<void> {
    throw this.#noWeights("cannot be saved");
  }

  async restore(): Promise<void> {
    throw this.#noWeights("takes no weights");
  }

  #noWeights(what: string): UsageError {
    return new UsageError(
      `${this.name}: is a model of a server, which ${what}; a tester that is trained must be a checkpoint`,
    );
  }
}

/** At most one token for each byte, as in byte-level vocabularies, and what templates add. */
function mostTokens({ messages, prompt }: { messages?: { content: string }[]; prompt?: string }): number {
  const texts = messages === undefined ? [prompt ?? ""] : messages.map(({ content }) => content);
  return texts.reduce((sum, text) => sum + Buffer.byteLength(text) + AROUND_MESSAGE, AROUND_MESSAGE);
}

const digest = (value: unknown) =>
  createHash("sha256").update(JSON.stringify(value)).digest("base64url").slice(0, 22);

/** 31 bits, which every server takes. */
const seedOf = (key: readonly number[]) =>
  createHash("sha256").update(JSON.stringify(key)).digest().readUInt32BE(0) >>> 1;
