/** A value that JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Something that remembers, so that a run which is resumed must restore it. */
export interface Stateful {
  /** Everything to be remembered; null for nothing. */
  getState(): Json;
  /** Goes on where `getState` was called. @throws UsageError for a state that is not its own */
  setState(state: Json): void;
}
