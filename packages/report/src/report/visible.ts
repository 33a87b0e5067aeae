// Control characters (C0, DEL, C1), format characters such as bidirectional overrides, line and paragraph separators,
// private use, unassigned and lone surrogates. Model output may contain any of them, and terminals interpret some.
// The joiners U+200C and U+200D are kept: Persian and emoji need them, and they are harmless.
const UNSAFE = /(?![\u200C\u200D])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

const SHORT: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/**
 * Untrusted text as one line that is safe for a terminal: escapes every character that a terminal might interpret,
 * and truncates after `limit` characters.
 */
export function visible(text: string, limit = Infinity): string {
  const characters = Array.from(text.replaceAll("\\", "\\\\"));
  const cut =
    characters.length > limit
      ? `${characters.slice(0, Math.max(0, limit - 1)).join("")}…`
      : characters.join("");
  return cut.replace(
    UNSAFE,
    (character) => SHORT[character] ?? `\\u{${character.codePointAt(0)!.toString(16)}}`,
  );
}

/**
 * Escapes other printed text: keeps line breaks and backslashes, escapes other characters that a terminal interprets.
 */
export function printable(text: string, limit = Infinity): string {
  return text
    .split("\n")
    .map((line) => visible(line, limit).replaceAll("\\\\", "\\"))
    .join("\n");
}

/**
 * Escapes every such character in JSON without changing its value. The input must come from JSON.stringify, so that
 * these characters occur only inside strings.
 */
export function visibleJson(json: string): string {
  return json.replace(UNSAFE, (character) =>
    Array.from(
      { length: character.length },
      (_, index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, "0")}`,
    ).join(""),
  );
}
