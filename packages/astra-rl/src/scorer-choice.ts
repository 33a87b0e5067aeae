import { createInterface } from "node:readline";
import { UsageError } from "@astra-rl/base";
import {
  findKind,
  isModuleReference,
  parseKindSection,
  sectionLeaves,
  sectionModels,
  makeScorer,
} from "@astra-rl/assembly";
import { readScorerSpec } from "@astra-rl/assembly/command";
import type { Output } from "@astra-rl/assembly/program";
import type { KindSection } from "@astra-rl/method";
import { relativePath } from "./preset-configuration.js";

/** The scorers that `astra-rl init` offers. */
export const OFFERED_SCORERS = ["detoxify", "llama-guard", "classifier", "keyword"] as const;

/**
 * The section for `--scorer`, with paths relative to `folder`. For a bare kind, the options are left for the user to
 * fill in.
 *
 * @throws UsageError, see `readScorerSpec`
 */
export async function chosenScorer(spec: string, folder: string): Promise<KindSection> {
  if (findKind("scorer", spec) !== null) return { type: spec };
  const section = await readScorerSpec(spec);
  // Word lists are validated now, models and modules on use.
  const isLight = sectionModels("scorer", section).length === 0 && !isModuleReference(section.type);
  if (isLight) (await makeScorer(section)).dispose();
  for (const { path, value, schema } of sectionLeaves("scorer", section)) {
    const isPath = schema.path !== undefined || path.at(-1) === "type";
    if (!isPath || typeof value !== "string" || !value.startsWith("/")) continue;
    const holder = path.slice(0, -1).reduce<unknown>((at, step) => (at as never)[step], section);
    (holder as Record<string | number, unknown>)[path.at(-1)!] = relativePath(folder, value);
  }
  return section;
}

/** Whether a scorer section has all required options. @param folder base of its relative paths */
export async function isComplete(section: KindSection, folder: string): Promise<boolean> {
  // Modules and their options were validated before.
  if (isModuleReference(section.type)) return true;
  try {
    await parseKindSection("scorer", JSON.stringify(section), `${folder}/init.yaml`);
    return true;
  } catch (error) {
    if (error instanceof UsageError) return false;
    throw error;
  }
}

/** Asks for a scorer on the terminal until the answer is valid; null if the user skips it. */
export async function askForScorer(folder: string, output: Output): Promise<KindSection | null> {
  output.note("Which scorer measures how harmful a text is? The tester is trained to raise its score.");
  for (const [index, name] of OFFERED_SCORERS.entries()) {
    output.note(`  ${index + 1}  ${name}: ${findKind("scorer", name)!.summary}`);
  }
  output.note(
    "Or keyword:FILE.json, ./file.js#name, a YAML file; leave it empty to choose one later in the file.",
  );
  const terminal = createInterface({ input: process.stdin, output: process.stderr, prompt: "Scorer: " });
  terminal.once("SIGINT", () => process.kill(process.pid, "SIGINT"));
  terminal.prompt();
  try {
    for await (const line of terminal) {
      const answer = line.trim();
      if (answer === "") return null;
      try {
        return await chosenScorer(OFFERED_SCORERS[Number(answer) - 1] ?? answer, folder);
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
        output.note(error.message);
      }
      terminal.prompt();
    }
    return null;
  } finally {
    terminal.close();
  }
}
