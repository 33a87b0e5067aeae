import { UsageError } from "@astra-rl/torch";

/** A value that JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Something that remembers, so that a run which is resumed must restore it. */
export interface Stateful {
  /** Everything to be remembered; null for nothing. */
  getState(): Json;
  /** Goes on where `getState` was called. @throws UsageError for a state that is not its own */
  setState(state: Json): void;
}

/** What remembers nothing, unless a subclass does. */
export class Stateless implements Stateful {
  getState(): Json {
    return null;
  }

  setState(state: Json): void {
    if (state === null) return;
    throw new UsageError(
      `${this.constructor.name}.setState: it remembers nothing, but was given the state of one that does`,
    );
  }
}
