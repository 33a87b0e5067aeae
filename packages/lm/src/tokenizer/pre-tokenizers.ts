import { CodePointSet, setOf } from "./code-points.js";
import { inOrder, type Part } from "./part.js";
import { bytesToChars } from "./byte-chars.js";
import { BYTE_LEVEL_PATTERN, Pattern } from "./pattern.js";
import { eachOf, readBehavior, readPattern, splitPiece, type Behavior, type Piece } from "./split.js";

export type PreTokenizer = (pieces: readonly Piece[]) => readonly Piece[];

/** Creates the pre-tokenizer described by a tokenizer.json. Throws UsageError for one not known to match Python's. */
export function readPreTokenizer(part: Part): PreTokenizer {
  switch (part.type) {
    case "Sequence": {
      const all = part.parts("pretokenizers").map((each) => each.read(readPreTokenizer));
      return inOrder(part, all, (pieces) => pieces.reduce((sum, { text }) => sum + text.length, 0));
    }
    case "ByteLevel":
      return readByteLevel(part);
    case "Metaspace":
      return readMetaspace(part);
    case "Split": {
      const pattern = readPattern(part);
      const behavior = readBehavior(part);
      const invert = part.boolean("invert");
      return (pieces) => {
        const found = pattern.matchesOfAll(pieces.map(({ text }) => text));
        return pieces.flatMap((piece, index) => splitPiece(piece, found[index]!, behavior, invert));
      };
    }
    case "Punctuation": {
      const behavior = readBehavior(part, { fallback: "Isolated" });
      return splitAt(setOf("punctuation"), behavior);
    }
    case "Digits":
      return splitAt(setOf("numeric"), part.boolean("individual_digits") ? "Isolated" : "Contiguous");
    case "Whitespace": {
      // Runs of word characters, and runs of other ones.
      const [spaces, words] = [splitAt(setOf("space"), "Removed"), splitAt(setOf("word"), "Contiguous")];
      return (pieces) => words(spaces(pieces));
    }
    case "WhitespaceSplit":
      return splitAt(setOf("space"), "Removed");
    case "CharDelimiterSplit":
      return splitAt(onlyPoint(part.character("delimiter")), "Removed");
    case "BertPreTokenizer": {
      const spaces = splitAt(setOf("space"), "Removed");
      const punctuation = splitAt(setOf("punctuation"), "Isolated");
      return (pieces) => punctuation(spaces(pieces));
    }
    default:
      throw part.refuse("unsupported-type", "type", "this pre-tokenizer is not supported");
  }
}

/** Splits at the characters of a set. */
function splitAt(separators: CodePointSet, behavior: Behavior): PreTokenizer {
  const find = eachOf(separators);
  return (pieces) => pieces.flatMap((piece) => splitPiece(piece, find(piece.text), behavior));
}

function onlyPoint(character: string): CodePointSet {
  const point = character.codePointAt(0)!;
  return new CodePointSet([[point, point]]);
}

function readByteLevel(part: Part): PreTokenizer {
  const addPrefixSpace = part.boolean("add_prefix_space");
  part.ignore(["trim_offsets"]); // affects offsets only, not ids
  const pattern = part.boolean("use_regex", { fallback: true })
    ? new Pattern(BYTE_LEVEL_PATTERN, (why) => part.refuse("untranslatable-pattern", "use_regex", why))
    : null;
  return (pieces) =>
    pieces.flatMap((given) => {
      const text = addPrefixSpace && !given.text.startsWith(" ") ? ` ${given.text}` : given.text;
      const piece = { text, first: given.first };
      const parts = pattern === null ? [piece] : splitPiece(piece, pattern.matches(text), "Isolated");
      return parts.map((each) => ({ text: bytesToChars(each.text), first: each.first }));
    });
}

function readMetaspace(part: Part): PreTokenizer {
  const { replacement, scheme } = readMetaspaceOptions(part);
  const split = part.boolean("split", { fallback: true });
  const divide = splitAt(onlyPoint(replacement), "MergedWithNext");
  return (pieces) => {
    const prepared = pieces.map((given) => {
      const text = given.text.replaceAll(" ", () => replacement);
      const prepend = scheme === "always" || (scheme === "first" && given.first);
      return { ...given, text: prepend && !text.startsWith(replacement) ? replacement + text : text };
    });
    return split ? divide(prepared) : prepared;
  };
}

/** Options shared by the Metaspace pre-tokenizer and decoder. */
export function readMetaspaceOptions(part: Part): { replacement: string; scheme: string } {
  const replacement = part.character("replacement");
  const scheme = part.string("prepend_scheme", { fallback: "always" });
  if (!["always", "first", "never"].includes(scheme)) {
    throw part.error("unknown-choice", "prepend_scheme", "always, first or never");
  }
  // Older files also give the scheme as a boolean. Python refuses files in which the two disagree.
  if (part.boolean("add_prefix_space", { fallback: null }) === false && scheme !== "never") {
    throw part.refuse(
      "contradictory-options",
      "add_prefix_space",
      `it does not agree with prepend_scheme ${JSON.stringify(scheme)}, and Python refuses this file`,
      'write "prepend_scheme": "never" where no space shall be put before a text',
    );
  }
  part.string("str_rep", { fallback: null }); // in older files, unused
  return { replacement, scheme };
}
