import { readFileSync } from "node:fs";
import { join } from "node:path";
import { UsageError } from "@astra-rl/torch";
import type { Configuration } from "../configuration/index.js";
import { modelSource } from "./model-source.js";

/** What families call the tokens that a model can read at once. */
const WINDOW_KEYS = ["n_positions", "max_position_embeddings"];

/**
 * Says, before any model is loaded, whether utterances fit the windows of the models that are folders of this machine; what
 * cannot be read is judged when it is loaded.
 *
 * @throws UsageError for an utterance that leaves no room for what it answers
 */
export function checkWindows({ models, generation }: Configuration): void {
  const roles = [
    ["tester", [models.tester, ...models.otherTesters]],
    ["target", [models.target, ...models.otherTargets]],
  ] as const;
  for (const [role, names] of roles) {
    const { maxNewTokens } = generation[role];
    // A target of one's own is a section, and has no window here.
    for (const name of names as readonly unknown[]) {
      const window = typeof name === "string" ? windowOf(modelSource(name)) : null;
      if (window === null || maxNewTokens < window) continue;
      throw new UsageError(
        `generation.${role}.maxNewTokens: must leave at least one token of context in the window of ${window} tokens of ` +
          `${String(name)}, got ${maxNewTokens}`,
      );
    }
  }
}

function windowOf(folder: string): number | null {
  try {
    const config = JSON.parse(readFileSync(join(folder, "config.json"), "utf8")) as Record<string, unknown>;
    const window = WINDOW_KEYS.map((key) => config[key]).find((value) => value !== undefined);
    return Number.isSafeInteger(window) && (window as number) > 0 ? (window as number) : null;
  } catch {
    return null;
  }
}
