/** Maximum length of a shown text; endless repetitions of a model are truncated. */
export const LONGEST = 4000;

// Control characters, direction overrides and other invisible ones, except joiners, line breaks and tabs: they are
// spelled out, so that a text neither hides nor reorders anything.
const INVISIBLE = /(?!\u200C|\u200D|[\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

/** A model's text for display: without white space at its ends, and with invisible characters spelled out. */
export function shown(text: unknown): string {
  const given = typeof text === "string" ? text : JSON.stringify(text);
  const characters = Array.from((given ?? "").trim());
  const cut = characters.length > LONGEST ? [...characters.slice(0, LONGEST - 1), "…"] : characters;
  return visible(cut.join(""));
}

/** A piece of a text, including white space, with invisible characters spelled out. */
export const visible = (text: string): string =>
  text.replace(INVISIBLE, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`);
