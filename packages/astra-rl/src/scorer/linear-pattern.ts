import { UsageError } from "@astra-rl/torch";
import { RE2JS, RE2JSException } from "re2js";
import { messageOf } from "../core/index.js";

/** A pattern that looks through any text in time linear in its length. */
export interface LinearPattern {
  test(text: string): boolean;
}

// What JavaScript takes for white space, as the inside of a class; re2js means the ASCII part of it alone.
const SPACES = String.raw`\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`;

/**
 * A user's pattern, in JavaScript's spelling with the flags i and u, on an engine that never takes a way twice: a model's
 * text meets patterns such as `(a+)+$`, with which JavaScript's own engine never ends.
 *
 * @param where begins the messages
 * @throws UsageError for what is no pattern, and for look-around and back-references, which no such engine has
 */
export function linearPattern(pattern: string, where: string): LinearPattern {
  try {
    // For its messages, and so that what JavaScript would refuse is refused.
    RegExp(pattern, "iu");
  } catch (error) {
    // The engine's message repeats the whole pattern.
    const reason = messageOf(error).slice(messageOf(error).lastIndexOf("/iu: ") + 5);
    throw new UsageError(`${where}: Invalid regular expression ${shown(pattern)}: ${reason}`, {
      cause: error,
    });
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
      `${where}: ${shown(pattern)} must be a pattern that is matched in linear time: ${reason}; write it without, ` +
        `or as several entries`,
      { cause: error },
    );
  }
}

const brief = (text: string) => (text.length > 80 ? `${text.slice(0, 79)}…` : text);
const shown = (pattern: string) => JSON.stringify(brief(pattern));

/** The same in the spelling of re2js. */
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
      // A backspace, in a class alone.
      if (found === String.raw`\b` && inClass) return String.raw`\x08`;
      return found;
    },
  );
  return RE2JS.translateRegExp(own);
}
