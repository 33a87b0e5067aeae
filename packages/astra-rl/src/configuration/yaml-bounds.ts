import { Lexer } from "yaml";

/** Levels of brackets, and columns of indentation, that a text may have: a configuration has some five of each. */
const MOST_LEVELS = 100;
const MOST_COLUMNS = 200;
/** Keys, and anchors and aliases together: parsers compare each key with the others of its section. */
const MOST_KEYS = 10_000;
const MOST_ANCHORS = 1000;

const DEEP_BLOCKS = new RegExp(`^(?: |- |\\? ){${MOST_COLUMNS}}`, "mu");

/** The token before a plain or quoted scalar. */
const SCALAR = "\u001F";

/**
 * What is too much in a text for any parser, as the end of a sentence; null where nothing is. Reads it once, without a
 * stack.
 */
export function excessOf(text: string): string | null {
  const deep = "is nested too deeply; a configuration has some five levels";
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
    if (keys > MOST_KEYS) return `has more than ${MOST_KEYS} keys; a configuration has some hundred`;
    if (anchors > MOST_ANCHORS) return `has more than ${MOST_ANCHORS} anchors and aliases`;
    before = token;
  }
  return null;
}
