import { describeValue, UsageError } from "@astra-rl/torch";

/** A class whose static `load` makes an instance of the class that it is called on, with what it has loaded. */
export type Loads<T, Loaded extends readonly unknown[]> = new (...loaded: Loaded) => T;

/**
 * Refuses a model that is none, where a constructor was called in place of the static method that loads one.
 *
 * @param instead how it is made
 */
export function requireLoaded(where: string, model: unknown, instead: string): void {
  if (typeof model === "object" && model !== null) return;
  throw new UsageError(
    `${where}: needs a model that is loaded, got ${describeValue(model)}; write await ${instead}`,
  );
}
