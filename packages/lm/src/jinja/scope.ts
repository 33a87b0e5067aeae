import type { Value } from "./values.js";

/** Names and their values: a scope reads those of enclosing scopes, and sets its own. */
export class Scope {
  readonly #values = new Map<string, Value>();

  constructor(private readonly outer: Scope | null) {}

  get(name: string): Value | undefined {
    const value = this.#values.get(name);
    return value === undefined ? this.outer?.get(name) : value;
  }

  set(name: string, value: Value): void {
    this.#values.set(name, value);
  }
}
