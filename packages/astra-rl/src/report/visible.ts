// Control characters (C0, DEL, C1), format characters such as bidirectional overrides, line and paragraph separators,
// private use, unassigned and lone surrogates. What a model writes may hold any of them, and terminals obey some.
// The joiners U+200C and U+200D stay: Persian and emoji need them, and they do nothing else.
const UNSAFE = /(?![\u200C\u200D])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

const SHORT: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/**
 * Hostile text as one harmless line for a terminal: every character that a terminal might obey is spelt out, and
 * the text is cut after `limit` characters.
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

/** Whatever is printed beside what models said: lines and backslashes stay, nothing else that a terminal obeys does. */
export function printable(text: string, limit = Infinity): string {
  return text
    .split("\n")
    .map((line) => visible(line, limit).replaceAll("\\\\", "\\"))
    .join("\n");
}

/**
 * JSON in which every such character is written as an escape. The value is the same; only JSON that was made by
 * JSON.stringify may be given, where these characters stand inside strings alone.
 */
export function visibleJson(json: string): string {
  return json.replace(UNSAFE, (character) =>
    Array.from(
      { length: character.length },
      (_, index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, "0")}`,
    ).join(""),
  );
}
