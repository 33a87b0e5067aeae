import { UsageError, type Json } from "@astra-rl/base";

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
      "no-state",
      `${this.constructor.name}.setState: it has no state, but was given the state of one that has`,
    );
  }
}
