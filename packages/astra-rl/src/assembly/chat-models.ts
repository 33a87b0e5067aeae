import { PlainFormat, type LocalModel } from "@astra-rl/lm";
import type { System } from "../core/index.js";

/**
 * Finds models that have a chat template but are used without it. They were trained on templated conversations, and
 * may respond poorly to plain text.
 *
 * @returns a warning per model
 */
export function chatModelsReadPlainly(system: System): string[] {
  const { parts } = system as { parts?: Readonly<Record<string, unknown>> };
  const { tester, otherTesters = [], target, otherTargets = [] } = parts ?? {};
  const speakers = [tester, otherTesters, target, otherTargets].flat() as (Partial<LocalModel> | undefined)[];
  return speakers.flatMap((model) => {
    if (!(model?.format instanceof PlainFormat) || model.tokenizer === undefined) return [];
    const { directoryFiles, settings } = model.tokenizer;
    const template = settings["chat_template"] ?? null;
    if (!directoryFiles.has("chat_template.jinja") && template === null) return [];
    return [
      `the ${model.name} comes with a chat template and is read as plain text, without it: what it says here may be ` +
        "nothing like what it says in a chat, and no harm found so is no sign of none",
    ];
  });
}
