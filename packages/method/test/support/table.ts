import { TokenTable } from "../../src/tree/index.js";

/** A table of these rows, with a gradient where asked for. */
export function table(rows: readonly (readonly number[])[], requiresGrad = false): TokenTable {
  const made = TokenTable.ofRows(rows);
  made.values.requiresGrad_(requiresGrad);
  return made;
}
