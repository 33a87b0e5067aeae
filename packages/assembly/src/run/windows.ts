import { readFileSync } from "node:fs";
import { join } from "node:path";
import { UsageError } from "@astra-rl/base";
import { checkpointOf, type Configuration, type ModelSetting } from "../configuration/index.js";
import { modelSource } from "../assemble/index.js";

/** Names of the context window in config.json, by model family. */
const WINDOW_KEYS = ["n_positions", "max_position_embeddings"];

/**
 * Checks, before any model is loaded, that messages fit the context windows of local checkpoints. Other models are
 * checked on loading.
 *
 * @throws UsageError if `maxNewTokens` leaves no room for a prompt
 */
export function checkWindows({ models, generation }: Configuration): void {
  const roles = [
    ["tester", [models.tester, ...models.otherTesters]],
    ["target", [models.target, ...models.otherTargets]],
  ] as const;
  for (const [role, names] of roles) {
    const { maxNewTokens } = generation[role];
    for (const given of names as readonly (ModelSetting | undefined)[]) {
      // The window of a custom target is unknown.
      const name = given === undefined ? null : checkpointOf(given);
      const window = name === null ? null : windowOf(modelSource(name));
      if (window === null || maxNewTokens < window) continue;
      throw new UsageError(
        "no-room-for-context",
        `generation.${role}.maxNewTokens: must leave at least one token of context in the window of ${window} tokens of ` +
          `${name}, got ${maxNewTokens}`,
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
