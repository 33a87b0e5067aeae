import type { System } from "@astra-rl/method";
import type { AnswerJournal } from "@astra-rl/http";
import type { ServerRecord } from "@astra-rl/records";
import { keepAnswers, modelFormats, probeServers, type ModelFormats } from "../assemble/index.js";
import type { Prompt } from "../datasets/index.js";
import type { Output } from "../program/output.js";

/**
 * Reports how the models of a system read conversations, and how their servers behave, before anything is generated.
 */
export async function introduceModels(
  system: System,
  output: Output,
  prompts: readonly Prompt[],
): Promise<{ formats: ModelFormats; servers: Record<string, ServerRecord> }> {
  const formats = modelFormats(system, prompts);
  const tell = ({ notes, warnings }: { notes: string[]; warnings: string[] }) => {
    for (const line of notes) output.note(line);
    for (const line of warnings) output.alert(line);
  };
  tell(formats);
  const found = await probeServers(system);
  tell(found);
  return { formats, servers: found.servers };
}

/** Stores the answers of servers in a file, and reports how many it has from an interrupted process. */
export async function keepAnswersOf(
  system: System,
  file: string,
  output: Output,
): Promise<AnswerJournal | null> {
  const journal = await keepAnswers(system, file);
  if (journal !== null && journal.size > 0) {
    output.note(
      `${file} has ${journal.size} earlier answers, which are reused; delete the file to request everything again`,
    );
  }
  return journal;
}
