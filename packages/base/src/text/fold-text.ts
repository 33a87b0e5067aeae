/**
 * Normalizes text for comparison: NFKC (full-width and styled letters become plain), without invisible characters
 * (soft hyphens, zero-width joiners), case-folded.
 *
 * Upper-casing first folds what lower-casing alone keeps distinct: "ß" and "SS", "ς" and "σ".
 */
export function foldText(text: string): string {
  return plainText(text).toUpperCase().toLowerCase().replaceAll("ς", "σ");
}

/** Like `foldText`, but keeps case. */
export function plainText(text: string): string {
  return text.normalize("NFKC").replaceAll(/\p{Default_Ignorable_Code_Point}/gu, "");
}
