/** Longest text that is shown at once; what a model repeats for ever is cut. */
export const LONGEST = 4000;

// Control characters, direction overrides and other invisible ones, but for the joiners, line breaks and tabs: they are
// spelt out, so that a text neither hides nor reorders anything.
const INVISIBLE = /(?!\u200C|\u200D|[\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

/** A model's text as it is shown: without the white space at its ends, and with nothing in it that cannot be seen. */
export function shown(text: unknown): string {
  const given = typeof text === "string" ? text : JSON.stringify(text);
  const characters = Array.from((given ?? "").trim());
  const cut = characters.length > LONGEST ? [...characters.slice(0, LONGEST - 1), "…"] : characters;
  return visible(cut.join(""));
}

/** A piece of a text, white space and all, with nothing in it that cannot be seen. */
export const visible = (text: string): string =>
  text.replace(INVISIBLE, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`);
