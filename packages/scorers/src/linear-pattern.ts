import { UsageError } from "@astra-rl/base";
import { RE2JS, RE2JSException } from "re2js";
import { messageOf } from "@astra-rl/method";

/** A pattern that matches in time linear in the text's length. */
export interface LinearPattern {
  test(text: string): boolean;
}

// JavaScript's `\s`, as the inside of a character class; re2js's `\s` is ASCII only.
const SPACES = String.raw`\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`;

/**
 * Compiles a user's pattern, in JavaScript syntax with the flags i and u, for an engine without backtracking: on a
 * pattern such as `(a+)+$`, JavaScript's own engine takes exponential time on some texts.
 *
 * @param where begins the messages
 * @throws UsageError for an invalid pattern, and for look-around and back-references, which such engines do not support
 */
export function linearPattern(pattern: string, where: string): LinearPattern {
  try {
    // Refuses what JavaScript refuses, with its error message.
    RegExp(pattern, "iu");
  } catch (error) {
    // The engine's message repeats the whole pattern.
    const reason = messageOf(error).slice(messageOf(error).lastIndexOf("/iu: ") + 5);
    throw new UsageError(
      "invalid-pattern",
      `${where}: Invalid regular expression ${shown(pattern)}: ${reason}`,
      {
        cause: error,
      },
    );
  }
  try {
    const compiled = RE2JS.compile(translated(pattern), RE2JS.CASE_INSENSITIVE);
    return { test: (text) => compiled.test(text) };
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error;
    const reason = /\(\?(?:<?[=!])/u.test(pattern)
      ? "look-ahead and look-behind cannot be used"
      : /\\[1-9k]/u.test(pattern)
        ? "references back to a group cannot be used"
        : brief(error.message.replace(/^error parsing regexp: /u, "").replace("(?i)", ""));
    throw new UsageError(
      "nonlinear-pattern",
      `${where}: ${shown(pattern)} must be a pattern that is matched in linear time: ${reason}; write it without, ` +
        `or as several entries`,
      { cause: error },
    );
  }
}

const brief = (text: string) => (text.length > 80 ? `${text.slice(0, 79)}…` : text);
const shown = (pattern: string) => JSON.stringify(brief(pattern));

/** Translates a pattern to re2js syntax. */
function translated(pattern: string): string {
  let inClass = false;
  const own = pattern.replace(
    /\\p\{(?:Script|sc)=(\w+)\}|\\P\{(?:Script|sc)=(\w+)\}|\\.|\[|\]/giu,
    (found, script?: string, other?: string) => {
      if (script !== undefined) return String.raw`\p{${script}}`;
      if (other !== undefined) return String.raw`\P{${other}}`;
      if (found === "[" || found === "]") inClass = found === "[";
      if (found === String.raw`\s`) return inClass ? SPACES : `[${SPACES}]`;
      if (found === String.raw`\S` && !inClass) return `[^${SPACES}]`;
      // `\b` is a backspace inside a character class.
      if (found === String.raw`\b` && inClass) return String.raw`\x08`;
      return found;
    },
  );
  return RE2JS.translateRegExp(own);
}
