import { Lexer } from "yaml";

/** Maximum nesting of brackets, and maximum columns of indentation. */
const MOST_LEVELS = 100;
const MOST_COLUMNS = 200;
/** Maximum keys, and maximum anchors plus aliases: parsers compare each key with all others of its section. */
const MOST_KEYS = 10_000;
const MOST_ANCHORS = 1000;

const DEEP_BLOCKS = new RegExp(`^(?: |- |\\? ){${MOST_COLUMNS}}`, "mu");

/** The token before a plain or quoted scalar. */
const SCALAR = "\u001F";

/**
 * Checks that a text is not too complex for a parser; returns the problem as the end of a sentence, or null. A single
 * pass without recursion.
 */
export function excessOf(text: string): string | null {
  const deep = "is nested too deeply; a configuration has about five levels";
  if (DEEP_BLOCKS.test(text)) return deep;
  let [level, keys, anchors] = [0, 0, 0];
  let before = "";
  for (const token of new Lexer().lex(text)) {
    if (before !== SCALAR) {
      if (token === "[" || token === "{") level += 1;
      else if (token === "]" || token === "}") level -= 1;
      else if (token === ":") keys += 1;
      else if (token.startsWith("&") || token.startsWith("*")) anchors += 1;
    }
    if (level > MOST_LEVELS) return deep;
    if (keys > MOST_KEYS) return `has more than ${MOST_KEYS} keys; a configuration has about a hundred`;
    if (anchors > MOST_ANCHORS) return `has more than ${MOST_ANCHORS} anchors and aliases`;
    before = token;
  }
  return null;
}
