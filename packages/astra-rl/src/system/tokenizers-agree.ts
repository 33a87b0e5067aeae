import type { Tokenizer } from "@astra-rl/lm";

/**
 * Whether two tokenizers give the same ids to the same text, so that ids can pass between models as they are. Judged
 * by their definitions, byte for byte: a false "no" only costs the encoding of a few utterances.
 */
export function tokenizersAgree(a: Tokenizer, b: Tokenizer): boolean {
  if (a === b) return true;
  const [first, second] = [a, b].map((tokenizer) => tokenizer.directoryFiles.get("tokenizer.json"));
  return first !== undefined && second !== undefined && Buffer.from(first).equals(second);
}
