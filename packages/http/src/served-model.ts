import { createHash } from "node:crypto";
import { distributed } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import type { Work } from "@astra-rl/method";
import type { Reply } from "./answer.js";
import { NOTHING, plus, type Cost } from "./budget.js";
import { mostTokens } from "./conversation.js";
import type { AnswerJournal } from "./journal.js";
import type { Asked, RequestSampling } from "./dialects/index.js";
import type { ServerTraits } from "./probe.js";
import type { Server, ServerRequest } from "./server.js";

/** A model behind a server. `work` counts the server's tokens, if it reports them. */
export abstract class ServedModel {
  readonly work: Work = { read: 0, generated: 0 };
  #traits: ServerTraits | null = null;
  /** Spent by earlier processes. */
  #earlier: Cost = NOTHING;

  constructor(
    readonly name: string,
    readonly server: Server,
  ) {}

  /** Whether its input marks the speakers. */
  get marksSpeakers(): boolean {
    const { dialect, options } = this.server;
    const { labels = {}, separator = "" } = options;
    return dialect.isChat || separator !== "" || Object.values(labels).some((label) => label !== "");
  }

  /** Finds out how the server behaves, by a few calls; must be called before the first request. */
  async probe(): Promise<ServerTraits> {
    this.#traits = await this.findTraits();
    return this.#traits;
  }

  /** What the probe found. @throws UsageError before it: parameters may be rejected, and a budget may not hold */
  protected requireTraits(): ServerTraits {
    if (this.#traits !== null) return this.#traits;
    throw new UsageError(
      "not-probed",
      `${this.server.where}: the server must be probed before its first answer, which train, evaluate and the commands do for ` +
        `the models, scorers and reward terms that they know; call await model.probe() (for a judge, judge.served.probe())`,
    );
  }

  protected abstract findTraits(): Promise<ServerTraits>;

  /**
   * Keeps answers in a journal, and counts the spending recorded in it. Earlier calls are added to it.
   *
   * @param journal the caller closes it after the model
   * @param account its name in the journal, which no other model has
   */
  async keepAnswers(journal: AnswerJournal, account = this.server.where): Promise<void> {
    const { server } = this;
    const before = server.budget.spent;
    server.account = account;
    this.#earlier = journal.spent(account);
    server.budget.share(this.#earlier, distributed.worldSize());
    await journal.charge(account, before);
    server.journal = journal;
  }

  /** The total spending, including earlier processes of the run. */
  get spent(): Cost & { dollars: number | null } {
    const { budget } = this.server;
    return { ...budget.spent, dollars: budget.dollars(budget.spent) };
  }

  /** `spent`, by all processes that share the run now. */
  async spentTogether(): Promise<Cost & { dollars: number | null }> {
    const { budget } = this.server;
    const all = await distributed.allGatherObject(plus(budget.spent, this.#earlier, -1));
    const spent = all.reduce((sum, own) => plus(sum, own), this.#earlier);
    return { ...spent, dollars: budget.dollars(spent) };
  }

  /** A request, without the parameters that the server rejects. @param asked what the model reads */
  protected requestOf(
    asked: Asked,
    sampling: RequestSampling,
    { limit, omitted }: Pick<ServerTraits, "limit" | "omitted">,
  ): ServerRequest {
    const { dialect, options } = this.server;
    const all = { model: options.model, ...dialect.body(asked, sampling, limit) };
    const kept = Object.entries(all).filter(([name]) => !omitted.includes(name));
    return {
      body: Object.fromEntries(kept),
      most: { input: mostTokens(asked), output: sampling.maxNewTokens },
    };
  }

  /**
   * The answer to a request: the journal's, or else the server's.
   *
   * @param what everything that the answer depends on, in addition to the model
   */
  protected async reply(what: readonly unknown[], request: ServerRequest): Promise<Reply> {
    const { server, name } = this;
    const identity = digest([name, server.baseURL, server.options.model, ...what]);
    const reply = server.journal?.reply(identity) ?? (await server.ask({ ...request, identity }));
    const usage = reply.answer === undefined ? reply.usage : reply.answer.usage;
    this.work.read += usage?.input ?? 0;
    this.work.generated += usage?.output ?? 0;
    return reply;
  }

  dispose(): void {
    this.server.dispose();
  }
}

/** @throws UsageError for a temperature that the server's API refuses */
export function checkTemperature(where: string, temperature: number, { dialect }: Server): void {
  const { maxTemperature: most, provider } = dialect;
  if (temperature <= most) return;
  throw new UsageError(
    "out-of-range",
    `${where}: must be at most ${most} for type: ${provider.type}, got ${temperature}`,
  );
}

/** The results of concurrent requests. All end before an error is thrown, so that their answers are kept. */
export async function together<T>(requests: readonly Promise<T>[]): Promise<T[]> {
  const settled = await Promise.allSettled(requests);
  return settled.map((each) => {
    if (each.status === "rejected") throw each.reason;
    return each.value;
  });
}

const digest = (value: unknown) =>
  createHash("sha256").update(JSON.stringify(value)).digest("base64url").slice(0, 22);
