import { existsSync, readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { distributed } from "@astra-rl/torch";
import {
  AnswerJournal,
  HTTPLikelihood,
  HTTPModel,
  ToolChat,
  type ServedModel,
  type ServerTraits,
} from "@astra-rl/http";
import {
  spendingLines,
  type EvaluationRecord,
  type ServerRecord,
  type SpendingRecord,
} from "@astra-rl/records";
import { servedModels, type AssembledSystem } from "../assemble/index.js";
import { agentModels } from "./agents.js";

/** Observed behavior of a system's servers. */
export interface ServerFindings {
  /** By the model's name, such as "target-2". */
  servers: Record<string, ServerRecord>;
  /** Notes to print before any other request. */
  notes: string[];
  warnings: string[];
}

/** The served models by distinct names: two judges of one model are `judge m` and `judge m (2)`. */
function modelsByName(assembled: AssembledSystem): Map<string, ServedModel> {
  const named = new Map<string, ServedModel>();
  for (const model of servedModels(assembled)) {
    let name = model.name;
    for (let number = 2; named.has(name); number += 1) name = `${model.name} (${number})`;
    named.set(name, model);
  }
  return named;
}

/** What a run records of a server. */
export const serverRecord = (traits: ServerTraits): ServerRecord => ({
  model: traits.model,
  limit: traits.limit,
  limit_holds: traits.limitHolds,
  omitted: [...traits.omitted],
  ignored: [...traits.ignored],
  logprobs: traits.logprobs,
  seed_repeats: traits.repeats,
});

/**
 * Probes the servers of a system, and reports where their behavior differs from the configuration.
 *
 * @throws UsageError for a server that does not answer
 */
export async function probeServers(assembled: AssembledSystem): Promise<ServerFindings> {
  const made: ServerFindings = { servers: {}, notes: [], warnings: [] };
  for (const [name, model] of modelsByName(assembled)) {
    const { server } = model;
    const traits = await model.probe();
    const { limit, limitHolds, missed, ignored, repeats } = traits;
    made.servers[name] = serverRecord(traits);
    made.notes.push(
      `${name}: ${server.options.model} at ${server.baseURL}` +
        (repeats === false ? "; equal seeds give different answers" : ""),
    );
    const warn = (fact: string) => made.warnings.push(`the ${name}'s server ${fact}`);
    const { budget, price } = server.options;
    if (server.uncounted > 0 && [budget.tokens, budget.dollars, price].some((each) => each !== undefined)) {
      warn("does not report token counts, or reports 0: each call is counted at its maximum cost");
    }
    if (model instanceof HTTPLikelihood && model.isChatWithoutMarks) {
      warn(
        "serves chats, but as the likelihood model it reads conversations as plain text, without a chat " +
          "template: a chat model rates " +
          "probes less likely than it would in a chat. Use a base model, or set labels and separator to the " +
          "template's markers",
      );
    }
    if (!(model instanceof HTTPModel || model instanceof ToolChat)) continue;
    const section = `generation.${model.role}`;
    const advice = `set ${section} to what the server does (topK: 0 for top_k), so that records are correct`;
    if (missed.length > 0) warn(`rejects ${missed.join(", ")}: ${advice}`);
    if (ignored.length > 0) warn(`accepts ${ignored.join(", ")} without effect: ${advice}`);
    if (limitHolds === false) {
      warn(`does not respect ${limit}: its answers may be longer than ${section}.maxNewTokens`);
    }
    if (repeats === null && !model.isGreedy) {
      warn(
        "gave the same answer to different seeds: it may decode greedily at any temperature (transformers serve does, " +
          "unless the checkpoint's generation_config.json has do_sample: true), so that every episode gets " +
          "the same answer",
      );
    }
  }
  return made;
}

/**
 * Stores the answers of a system's servers in a file, from which a later process reuses them; without servers
 * there is no file.
 *
 * @returns the journal, which the caller closes after the system; null without servers
 * @throws UsageError for a file that is no journal
 */
export async function keepAnswers(assembled: AssembledSystem, file: string): Promise<AnswerJournal | null> {
  const models = modelsByName(assembled);
  if (models.size + agentModels(assembled.system).length === 0) return null;
  // Each process writes its own file, and reads those of all processes, including earlier starts.
  const stem = file.replace(/\.jsonl$/u, "");
  const rank = distributed.rank();
  const own = rank === 0 ? file : `${stem}.rank-${rank}.jsonl`;
  const others = filesBeside(stem).filter((name) => name !== own);
  const journal = new AnswerJournal(
    own,
    others.map((name) => new AnswerJournal(name)),
  );
  // No process writes before all have read.
  await distributed.barrier();
  for (const [name, model] of models) {
    const number = name.slice(model.name.length);
    await model.keepAnswers(journal, `${model.server.where}${number}`);
  }
  return journal;
}

/** The journals of all processes, if the run has any. */
function filesBeside(stem: string): string[] {
  const [folder, name] = [dirname(stem), basename(stem)];
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((file) => file.startsWith(name) && /^(?:\.rank-\d+)?\.jsonl$/u.test(file.slice(name.length)))
    .map((file) => join(folder, file));
}

/** A line for each server with what this process, and earlier ones, spent. */
export const spendingNotes = (assembled: AssembledSystem): string[] =>
  spendingLines(
    Object.fromEntries([...modelsByName(assembled)].map(([name, { spent }]) => [name, recorded(spent)])),
  );

/** What all processes spent on each server. */
async function spendingOfRanks(assembled: AssembledSystem): Promise<SpendingRecord> {
  const all: SpendingRecord = {};
  for (const [name, model] of modelsByName(assembled)) all[name] = recorded(await model.spentTogether());
  return all;
}

/** The record of an evaluation with what it spent on servers, if it called any. */
export async function withSpending(
  record: EvaluationRecord,
  assembled: AssembledSystem,
): Promise<EvaluationRecord> {
  const spending = await spendingOfRanks(assembled);
  return Object.keys(spending).length === 0 ? record : { ...record, spending };
}

/** A line for each server with what all processes spent. */
export const spendingNotesOfRanks = async (assembled: AssembledSystem): Promise<string[]> =>
  spendingLines(await spendingOfRanks(assembled));

const recorded = ({ calls, input, output, dollars }: ServedModel["spent"]): SpendingRecord[string] => ({
  calls,
  input_tokens: input,
  output_tokens: output,
  dollars,
});
