import { foldText } from "./fold-text.js";

const WORD = /[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}\p{N}]+)*|[^\s\p{L}\p{M}\p{N}]/gu;

/**
 * The words of a text after `foldText`: runs of letters and digits, with inner apostrophes; every other visible
 * character is a word of its own.
 */
export function words(text: string): string[] {
  return (foldText(text).match(WORD) ?? []).map((word) => word.replaceAll("’", "'"));
}
