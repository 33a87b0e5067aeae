import { z } from "zod";
import { FREE, SAME_CONTENT } from "./kind-schema.js";

/** Name of the package's own prompts and scorer, and prefix of its models. */
export const EMBEDDED = "embedded";

const promptSource = (meta: Record<string, string>) => z.string().min(1).default(EMBEDDED).meta(meta);
const goalSource = (meta: Record<string, string>) => z.string().min(1).optional().meta(meta);
const TEST_FILE = { ...FREE, path: "file" };

export const promptsSchema = z.strictObject({
  train: promptSource(SAME_CONTENT).describe(
    "Prompts from which training episodes start: a file (.json, .jsonl, .csv, .txt, .parquet, .arrow), a file on the " +
      'hub (hf://datasets/owner/name/path), a data set by its name (convokit-reddit-train), or "embedded" for ' +
      "those that come with the package",
  ),
  dev: promptSource(SAME_CONTENT).describe("Prompts of the periodic evaluations during training"),
  test: promptSource(TEST_FILE).describe("Held-out prompts of `astra-rl eval`"),
  goals: z
    .strictObject({
      train: goalSource(SAME_CONTENT).describe("Goals of training"),
      dev: goalSource(SAME_CONTENT).describe("Goals of the periodic evaluations"),
      test: goalSource(TEST_FILE).describe("Goals of `astra-rl eval`, others than those of training"),
    })
    .optional()
    .describe(
      'Files of goals, in a column "goal" or as HarmBench, JailbreakBench, StrongREJECT and AdvBench have them: each is paired with ' +
        "prompts above, drawn at random. Default: the goals in the rows of the prompts, if they have any",
    ),
  column: z
    .string()
    .min(1)
    .optional()
    .describe(
      'Column of these files that holds the prompts. Default: "prompt", else "messages"; rows with a goal need none',
    ),
});
