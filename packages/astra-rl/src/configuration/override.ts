import { UsageError } from "@astra-rl/torch";
import { parse } from "yaml";

/** One `--set a.b=c` of the command line. */
export interface Override {
  path: readonly string[];
  value: unknown;
  /** As it was written, for messages. */
  text: string;
}

/**
 * Reads `a.b=c`; the value is YAML, so that numbers, lists and booleans are what they look like.
 *
 * @throws UsageError when there is no "=", a part of the path is empty, or the value is no YAML
 */
export function parseOverride(text: string): Override {
  const at = text.indexOf("=");
  const path = text.slice(0, Math.max(at, 0)).split(".");
  if (at < 0 || path.some((part) => part.trim() === "")) {
    throw new UsageError(
      `--set ${text}: must look like section.key=value, for example training.learningRate=1e-5`,
    );
  }
  try {
    return { path: path.map((part) => part.trim()), value: parse(text.slice(at + 1)) as unknown, text };
  } catch (error) {
    throw new UsageError(`--set ${text}: the value is not YAML: ${(error as Error).message.split("\n")[0]}`, {
      cause: error,
    });
  }
}

/**
 * Puts overrides into what the file said, in order; sections that the file leaves out are made.
 *
 * @throws UsageError when a path leads through something that is no section
 */
export function applyOverrides(content: Record<string, unknown>, overrides: readonly Override[]): void {
  for (const { path, value, text } of overrides) {
    let section = content;
    for (const part of path.slice(0, -1)) {
      const next = Object.hasOwn(section, part) ? section[part] : undefined;
      if (next !== undefined && next !== null && (typeof next !== "object" || Array.isArray(next))) {
        throw new UsageError(`--set ${text}: "${part}" is a value, not a section`);
      }
      // defineProperty, since plain assignment of a key such as __proto__ would do something else.
      if (next === undefined || next === null) define(section, part, {});
      section = section[part] as Record<string, unknown>;
    }
    define(section, path.at(-1)!, value);
  }
}

function define(section: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(section, key, { value, writable: true, enumerable: true, configurable: true });
}
