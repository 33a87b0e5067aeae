import { AnswerJournal, HTTPModel } from "../http/index.js";
import type { System } from "../core/index.js";
import type { ServerRecord } from "../records/index.js";

/** What the servers of a system were seen to do. */
export interface ServerFindings {
  /** By the model's name, such as "target-2". */
  servers: Record<string, ServerRecord>;
  /** What to tell before anything else is asked. */
  notes: string[];
  warnings: string[];
}

/** The models of a system that a server runs. */
export function httpModels(system: System): HTTPModel[] {
  const { parts } = system as { parts?: Readonly<Record<string, unknown>> };
  const { tester, otherTesters = [], target, otherTargets = [] } = parts ?? {};
  return [tester, otherTesters, target, otherTargets].flat().filter((each) => each instanceof HTTPModel);
}

/**
 * Asks the servers of a system what they can do, and says where they do something else than configured.
 *
 * @throws UsageError for a server that does not answer
 */
export async function probeServers(system: System): Promise<ServerFindings> {
  const made: ServerFindings = { servers: {}, notes: [], warnings: [] };
  for (const model of httpModels(system)) {
    const { name, server } = model;
    const traits = await model.probe();
    const { limit, limitHolds, omitted, logprobs, repeats } = traits;
    made.servers[name] = {
      model: traits.model,
      limit,
      limit_holds: limitHolds,
      omitted: [...omitted],
      logprobs,
      seed_repeats: repeats,
    };
    made.notes.push(
      `${name}: ${server.options.model} at ${server.options.baseURL}` +
        (repeats === false ? "; a seed does not repeat its answers, only the run's own record does" : ""),
    );
    if (omitted.length > 0) {
      made.warnings.push(
        `the server of the ${name} refuses ${omitted.join(", ")}: it samples without, otherwise than generation.` +
          `${model.role} says; set them to what it does, such as topK: 0, so that records say what happened`,
      );
    }
    if (limitHolds === false) {
      made.warnings.push(`the server of the ${name} gives longer answers than ${limit} allows`);
    }
  }
  return made;
}

/**
 * Keeps the answers of a system's servers in a file, from which a later process takes those that it has; without servers
 * there is no file.
 *
 * @returns the journal, which the caller closes after the system; null without servers
 * @throws UsageError for a file that is no journal
 */
export async function keepAnswers(system: System, file: string): Promise<AnswerJournal | null> {
  const models = httpModels(system);
  if (models.length === 0) return null;
  const journal = new AnswerJournal(file);
  for (const model of models) await model.keepAnswers(journal);
  return journal;
}

/** A line for each server with what was spent. */
export function spendingNotes(system: System): string[] {
  return httpModels(system).map(({ name, spent }) => {
    const { calls, input, output, dollars } = spent;
    const [asked, read, written] = [calls, input, output].map((count) => count.toLocaleString("en-US"));
    const cost = dollars === null ? "" : `, $${dollars.toFixed(4)}`;
    return `${name}: ${asked} calls, ${read} tokens read, ${written} generated${cost}`;
  });
}
