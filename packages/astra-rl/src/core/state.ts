import { UsageError } from "@astra-rl/torch";

/** A value that JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Has state that a resumed run must restore. */
export interface Stateful {
  /** The complete state; null for none. */
  getState(): Json;
  /** Continues where `getState` was called. @throws UsageError for the state of something else */
  setState(state: Json): void;
}

/** Has no state by default; subclasses may add some. */
export class Stateless implements Stateful {
  getState(): Json {
    return null;
  }

  setState(state: Json): void {
    if (state === null) return;
    throw new UsageError(
      `${this.constructor.name}.setState: it has no state, but was given the state of one that has`,
    );
  }
}
