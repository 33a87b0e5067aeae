/**
 * The first key that occurs twice in one object of a JSON text, at any depth; null if there is none.
 *
 * JSON.parse does not detect this: it silently keeps the last. Keys are compared after unescaping, so `"a"` and
 * `"\u0061"` are the same key.
 * @param text valid JSON (it went through JSON.parse before)
 */
export function findDuplicateKey(text: string): string | null {
  // A set for each open object, null for each open array; innermost last.
  const open: (Set<string> | null)[] = [];
  for (let index = 0; index < text.length; index += 1) {
    const character = text[index];
    if (character === "{") open.push(new Set());
    else if (character === "[") open.push(null);
    else if (character === "}" || character === "]") open.pop();
    else if (character === '"') {
      const begin = index;
      index = endOfString(text, begin);
      const keys = open.at(-1);
      if (keys === undefined || keys === null || !isFollowedByColon(text, index + 1)) continue;
      const key = JSON.parse(text.slice(begin, index + 1)) as string;
      if (keys.has(key)) return key;
      keys.add(key);
    }
  }
  return null;
}

/** Index of the closing quote of the string that opens at `begin`. */
function endOfString(text: string, begin: number): number {
  let index = begin + 1;
  while (text[index] !== '"') index += text[index] === "\\" ? 2 : 1;
  return index;
}

function isFollowedByColon(text: string, begin: number): boolean {
  let index = begin;
  while (" \t\n\r".includes(text[index] ?? "end")) index += 1;
  return text[index] === ":";
}
