import { z } from "zod";
import { Scorer, defineKind, type Exchange, type ScoreOutcome } from "@astra-rl/method";
import type { Conversation } from "@astra-rl/lm";
import type { Failure } from "@astra-rl/records";
import { parseOptions, readTextFile } from "@astra-rl/base";
import type { ChatMessage } from "./conversation.js";
import { chatServerShape, serverOptions } from "./options.js";
import { probeServer, type ServerTraits } from "./probe.js";
import { instructionsOf, ownRubric, RUBRICS, verdictForm, type Rubric } from "./rubrics.js";
import { checkTemperature, ServedModel, together } from "./served-model.js";
import { Server, type ServerRequest, type ServerSurroundings } from "./server.js";
import { readVerdict } from "./verdict.js";

const options = z.strictObject({
  ...chatServerShape,
  rubric: z
    .enum(["harm", "compliance"])
    .default("harm")
    .describe(
      "harm: whether the message does harm; compliance: how well it helps with the request, 0 for a refusal",
    ),
  file: z
    .string()
    .min(1)
    .optional()
    .meta({ path: "file", resume: "content" })
    .describe("A text file with a custom rubric, which replaces rubric; its verdict is a score from 0 to 1"),
  reads: z
    .enum(["conversation", "turn"])
    .default("conversation")
    .describe(
      "What the judge sees before the judged message: the whole conversation, or the message that it answers",
    ),
  votes: z
    .int()
    .min(1)
    .max(99)
    .default(1)
    .describe("Number of independent verdicts for each message; the score is their mean"),
  temperature: z
    .number()
    .min(0)
    .max(2)
    .optional()
    .describe("Sampling temperature. Default: 0 for one vote, 1 for several"),
  maxNewTokens: z.int().min(16).default(512).describe("Maximum length of a verdict, reasoning included"),
});

export type JudgeOptions = Omit<z.input<typeof options>, "file"> & {
  /** A custom rubric, instead of `rubric`. */
  question?: string;
};

const codeOptions = options.omit({ file: true }).extend({ question: z.string().min(1).optional() });

/** Attempts for a vote without a valid verdict, each with another seed. */
const TRIES = 2;
/** Maximum tokens of an answer to the probe. */
const PROBE_TOKENS = 8;

/** The model that a judge queries. */
class JudgeModel extends ServedModel {
  constructor(
    server: Server,
    private readonly rubric: Rubric,
    private readonly sampling: { temperature: number; maxNewTokens: number },
  ) {
    super(server.where, server);
  }

  protected findTraits(): Promise<ServerTraits> {
    return probeServer(this.server, (traits, { question, seed, maxNewTokens = PROBE_TOKENS }) =>
      this.#request([{ role: "user", content: question }], seed, maxNewTokens, traits),
    );
  }

  /** One verdict's score, or a failure. */
  async vote(messages: readonly ChatMessage[], vote: number): Promise<number | Failure> {
    const traits = await this.probe();
    for (let tried = 1; ; tried++) {
      const seed = vote * TRIES + tried;
      const { body, most } = this.#request(messages, seed, this.sampling.maxNewTokens, traits);
      const { answer, failure } = await this.reply([messages, seed, this.sampling], { body, most });
      if (failure !== undefined) return { ...failure, stage: "scorer" };
      const { score, problem } = readVerdict(answer, this.rubric);
      if (score !== undefined) return score;
      if (tried < TRIES) continue;
      const shown = JSON.stringify(answer.text.slice(0, 120));
      const message = `${this.server.options.model}: no verdict in ${shown}: ${problem}`;
      return { stage: "scorer", message, attempts: tried, cause: "answer" };
    }
  }

  #request(
    messages: readonly ChatMessage[],
    seed: number,
    maxNewTokens: number,
    traits: Pick<ServerTraits, "limit" | "omitted">,
  ): ServerRequest {
    const schema = z.toJSONSchema(verdictForm(this.rubric));
    const sampling = { temperature: this.sampling.temperature, maxNewTokens, seed, schema };
    return this.requestOf({ messages }, sampling, traits);
  }
}

/**
 * A chat model behind a server that judges messages by a rubric.
 *
 * An answer without a verdict is a failure, never a low score. With several votes the score is their mean, and the label
 * `agreement` the share of votes with the majority. The judged message is sent as JSON, so that it cannot be mistaken
 * for the judge's instructions; a text may still persuade a judge, so compare verdicts with human labels.
 */
export class JudgeScorer extends Scorer {
  readonly name: string;
  override readonly labelNames: readonly string[];
  readonly rubric: Rubric;
  readonly #judge: JudgeModel;
  readonly #votes: number;
  readonly #reads: "conversation" | "turn";
  readonly #instructions: string;

  /** @throws UsageError for invalid options, and environment variables that are not set */
  constructor(given: JudgeOptions, surroundings: ServerSurroundings = {}) {
    super();
    const parsed = parseOptions("judge", codeOptions, given);
    const where = `judge ${parsed.model}`;
    const {
      rubric,
      question,
      reads,
      votes,
      temperature = votes === 1 ? 0 : 1,
      maxNewTokens,
      ...server
    } = parsed;
    this.rubric = question === undefined ? RUBRICS[rubric] : ownRubric(question);
    this.name = `${where} (${this.rubric.name})`;
    this.labelNames = votes === 1 ? [] : ["agreement"];
    this.#votes = votes;
    this.#reads = reads;
    this.#instructions = instructionsOf(this.rubric);
    const own = new Server(where, parseOptions(where, serverOptions, server), surroundings);
    checkTemperature(`${where}.temperature`, temperature, own);
    this.#judge = new JudgeModel(own, this.rubric, { temperature, maxNewTokens });
  }

  /** The server's client: it probes the server, keeps its answers, and counts the cost. */
  get served(): ServedModel {
    return this.#judge;
  }

  override get keepsContext(): boolean {
    return this.#reads === "conversation";
  }

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return this.scoreExchanges(texts.map((prompt) => ({ prompt, response: null })));
  }

  override scoreExchanges(exchanges: readonly Exchange[]): Promise<ScoreOutcome[]> {
    return together(exchanges.map((exchange) => this.#outcome(this.#messagesOf(exchange))));
  }

  override dispose(): void {
    this.served.dispose();
  }

  async #outcome(asked: readonly ChatMessage[]): Promise<ScoreOutcome> {
    const votes = await together(
      Array.from({ length: this.#votes }, (_, vote) => this.#judge.vote(asked, vote)),
    );
    const scores = votes.filter((vote) => typeof vote === "number");
    const failure = votes.find((vote) => typeof vote !== "number");
    if (failure !== undefined) return { failure };
    const score = scores.reduce((sum, each) => sum + each, 0) / scores.length;
    if (scores.length === 1) return { score };
    const harmful = scores.filter((each) => each >= 0.5).length;
    return { score, labels: { agreement: Math.max(harmful, scores.length - harmful) / scores.length } };
  }

  #messagesOf({ prompt, response, context }: Exchange): ChatMessage[] {
    const before = this.keepsContext && context !== undefined ? said(context) : [];
    const [conversation, message] =
      response === null
        ? [before, { role: "user", content: prompt }]
        : [[...before, { role: "user", content: prompt }], { role: "assistant", content: response }];
    return [
      { role: "system", content: this.#instructions },
      { role: "user", content: JSON.stringify({ conversation, message }) },
    ];
  }
}

const ROLES: Readonly<Record<string, ChatMessage["role"]>> = { system: "system", target: "assistant" };

const said = (conversation: Conversation): ChatMessage[] =>
  conversation
    .messages()
    .filter(({ text }) => text !== "")
    .map(({ from, text }) => ({ role: ROLES[from] ?? "user", content: text }));

export const judgeKind = defineKind({
  role: "scorer",
  name: "judge",
  summary: "A chat model behind a server, by a rubric",
  schema: options,
  make: async ({ file, ...chosen }) =>
    new JudgeScorer({ ...chosen, question: file && (await readTextFile(file, "the rubric")).trim() }),
});
