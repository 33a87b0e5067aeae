import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "../training/temporary-folder.js";

export interface ChatterRun {
  /** The training section, as YAML in braces. */
  training: string;
  /** Default: the configuration's own. */
  algorithm?: string;
  /** For all splits. */
  prompts?: readonly string[];
  /** Maximum tokens per message. Default 6. */
  newTokens?: number;
  seed?: number;
}

/** Writes the configuration of a small run on the embedded model, in a new folder, with keywords as scorer. */
export function chatterRun({
  training,
  algorithm,
  prompts = ["Hello. ", "It rained. ", "What now? "],
  newTokens = 6,
  seed,
}: ChatterRun): { folder: string; file: string } {
  const folder = temporaryFolder();
  const file = join(folder, "run.yaml");
  writeFileSync(join(folder, "prompts.txt"), prompts.map((prompt) => `${prompt}\n`).join(""));
  writeFileSync(
    file,
    `
models: { tester: embedded:chatter, target: embedded:chatter }
prompts: { train: ./prompts.txt, dev: ./prompts.txt, test: ./prompts.txt }
sampler: { width: 2, depth: 2 }
scorer: { type: keyword, entries: [{ term: the, weight: 0.9 }, { term: i, weight: 0.9 }] }
generation: { tester: { maxNewTokens: ${newTokens} }, target: { maxNewTokens: ${newTokens} } }
${algorithm === undefined ? "" : `algorithm: ${algorithm}\n`}${seed === undefined ? "" : `seed: ${seed}\n`}training: ${training}
`,
  );
  return { folder, file };
}
