import { Lexer } from "yaml";

/** Levels of brackets, and columns of indentation, that a text may have: a configuration has some five of each. */
const MOST_LEVELS = 100;
const MOST_COLUMNS = 200;

const DEEP_BLOCKS = new RegExp(`^(?: |- |\\? ){${MOST_COLUMNS}}`, "mu");

/** Whether a text is nested more deeply than any parser that calls itself has stack for. Reads it without a stack. */
export function isNestedTooDeeply(text: string): boolean {
  if (DEEP_BLOCKS.test(text)) return true;
  let level = 0;
  for (const token of new Lexer().lex(text)) {
    if (token === "[" || token === "{") level += 1;
    else if (token === "]" || token === "}") level -= 1;
    if (level > MOST_LEVELS) return true;
  }
  return false;
}
