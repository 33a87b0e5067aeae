import { UsageError } from "@astra-rl/base";
import { HTTPLikelihood, HTTPModel, type ServerOptions } from "@astra-rl/http";
import { serverRecord } from "@astra-rl/assembly/command";
import type { Output } from "@astra-rl/assembly/program";
import type { ServerRecord } from "@astra-rl/records";
import { table } from "@astra-rl/report";

/** The place of a model: its API's base URL, its name there, and how to call it. */
export type ServerPlace = { baseURL: string; model: string } & Partial<
  Pick<ServerOptions, "api" | "apiKeyEnv">
>;

/** What `doctor --server` finds. */
interface ServerFacts {
  baseURL: string;
  /** As a run records it. */
  server: ServerRecord;
  /** Options of the sampling that its API has no parameter for. */
  unsupported: readonly string[];
  /** Whether answers come with token counts. */
  counts: boolean;
  /** Whether it returns log-probabilities of a prompt; null for an API that has none. */
  prompt_logprobs: boolean | null;
  /** What these calls cost. */
  spent: { calls: number; input: number; output: number };
}

/** Each option has an effect, so that each is probed. */
const SAMPLING = {
  maxNewTokens: 8,
  minNewTokens: 4,
  temperature: 1,
  topK: 50,
  topP: 0.9,
  repetitionPenalty: 1.2,
} as const;

const WHERE = "doctor --server";

/**
 * Probes a server as a run does at its start, with every sampling option in use.
 *
 * @throws UsageError for a server that does not answer, or refuses the key
 */
export async function diagnoseServer(place: ServerPlace): Promise<ServerFacts> {
  const model = new HTTPModel("server", "target", { server: place, sampling: SAMPLING, where: WHERE });
  try {
    const server = serverRecord(await model.probe());
    const reader = model.server.dialect.api === "completions" ? await promptReader(place) : null;
    const { calls, input, output } = model.spent;
    const more = reader?.spent ?? { calls: 0, input: 0, output: 0 };
    return {
      baseURL: model.server.baseURL,
      server,
      unsupported: model.server.dialect.unsupported,
      counts: model.server.uncounted === 0,
      prompt_logprobs: reader?.isAble ?? null,
      spent: { calls: calls + more.calls, input: input + more.input, output: output + more.output },
    };
  } finally {
    model.dispose();
  }
}

/** Whether the server can tell the likelihood of probes, and what asking cost. */
async function promptReader(server: ServerPlace): Promise<{ isAble: boolean; spent: ServerFacts["spent"] }> {
  const likelihood = new HTTPLikelihood("server", { server, where: WHERE });
  try {
    await likelihood.probe();
    return { isAble: true, spent: likelihood.spent };
  } catch (error) {
    if (!(error instanceof UsageError) || error.rule !== "no-logprobs") throw error;
    return { isAble: false, spent: likelihood.spent };
  } finally {
    likelihood.dispose();
  }
}

/** Shows them as a table. */
export function showServer(
  { baseURL, server, unsupported, counts, prompt_logprobs: reads, spent }: ServerFacts,
  output: Output,
): void {
  const listed = (names: readonly string[]) => (names.length === 0 ? "none" : names.join(", "));
  const holds = { true: "respected", false: "not respected", null: "unknown, without token counts" };
  const seeds = {
    true: "equal seeds give equal answers",
    false: "equal seeds give different answers",
    null: "different seeds give equal answers",
  };
  const rows = [
    ["base URL", baseURL],
    ["model", server.model ?? "not named"],
    ["token limit", `${server.limit}: ${holds[`${server.limit_holds}`]}`],
    ["token counts", counts ? "reported" : "not reported"],
    ["parameters rejected", listed([...unsupported, ...server.omitted])],
    ["parameters ignored", listed(server.ignored)],
    ["seed", seeds[`${server.seed_repeats}`]],
    ["log-probabilities of answers", `${Math.round(100 * server.logprobs)} % of the tokens`],
    [
      "log-probabilities of prompts",
      reads === null ? "not by this API; try --api completions" : reads ? "yes" : "no",
    ],
  ];
  for (const line of table(["server", "what it does"], rows)) output.result(line);
  output.result(`${spent.calls} calls, ${spent.input} tokens read, ${spent.output} generated`);
}
