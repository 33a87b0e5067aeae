import { CodePointSet, setOf } from "./code-points.js";
import { inOrder, type Part } from "./part.js";
import { bytesToChars } from "./byte-chars.js";
import { BYTE_LEVEL_PATTERN, Pattern } from "./pattern.js";
import { eachOf, readBehavior, readPattern, splitPiece, type Piece } from "./split.js";

export type PreTokenizer = (pieces: readonly Piece[]) => readonly Piece[];

/** Creates the pre-tokenizer described by a tokenizer.json. Throws UsageError for one not known to match Python's. */
export function readPreTokenizer(part: Part): PreTokenizer {
  const perPiece =
    (split: (piece: Piece) => Piece[]): PreTokenizer =>
    (pieces) =>
      pieces.flatMap(split);
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
      const find = eachOf(setOf("punctuation"));
      return perPiece((piece) => splitPiece(piece, find(piece.text), behavior));
    }
    case "Digits": {
      const behavior = part.boolean("individual_digits") ? "Isolated" : "Contiguous";
      const find = eachOf(setOf("numeric"));
      return perPiece((piece) => splitPiece(piece, find(piece.text), behavior));
    }
    case "Whitespace": {
      const [word, space] = [setOf("word"), setOf("space")];
      return perPiece((piece) => splitWords(piece, word, space));
    }
    case "WhitespaceSplit": {
      const find = eachOf(setOf("space"));
      return perPiece((piece) => splitPiece(piece, find(piece.text), "Removed"));
    }
    case "CharDelimiterSplit": {
      const delimiter = part.character("delimiter").codePointAt(0)!;
      const find = eachOf(new CodePointSet([delimiter, delimiter]));
      return perPiece((piece) => splitPiece(piece, find(piece.text), "Removed"));
    }
    case "BertPreTokenizer": {
      const [space, punctuation] = [eachOf(setOf("space")), eachOf(setOf("punctuation"))];
      return (pieces) =>
        pieces
          .flatMap((piece) => splitPiece(piece, space(piece.text), "Removed"))
          .flatMap((piece) => splitPiece(piece, punctuation(piece.text), "Isolated"));
    }
    default:
      throw part.refuse("type", "this pre-tokenizer is not supported");
  }
}

function readByteLevel(part: Part): PreTokenizer {
  const addPrefixSpace = part.boolean("add_prefix_space");
  part.ignore(["trim_offsets"]); // affects offsets only, not ids
  const pattern = part.boolean("use_regex", { fallback: true })
    ? new Pattern(BYTE_LEVEL_PATTERN, (why) => part.refuse("use_regex", why))
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
  const point = replacement.codePointAt(0)!;
  const find = eachOf(new CodePointSet([point, point]));
  return (pieces) =>
    pieces.flatMap((given) => {
      let text = given.text.replaceAll(" ", () => replacement);
      const prepend = scheme === "always" || (scheme === "first" && given.first);
      if (prepend && !text.startsWith(replacement)) text = replacement + text;
      const piece = { text, first: given.first };
      return split ? splitPiece(piece, find(text), "MergedWithNext") : [piece];
    });
}

/** Options shared by the Metaspace pre-tokenizer and decoder. */
export function readMetaspaceOptions(part: Part): { replacement: string; scheme: string } {
  const replacement = part.character("replacement");
  const scheme = part.string("prepend_scheme", { fallback: "always" });
  if (!["always", "first", "never"].includes(scheme)) {
    throw part.error("prepend_scheme", "always, first or never");
  }
  // Older files also give the scheme as a boolean. Python refuses files in which the two disagree.
  if (part.boolean("add_prefix_space", { fallback: null }) === false && scheme !== "never") {
    throw part.refuse(
      "add_prefix_space",
      `it does not agree with prepend_scheme ${JSON.stringify(scheme)}, and Python refuses this file`,
      'write "prepend_scheme": "never" where no space shall be put before a text',
    );
  }
  part.string("str_rep", { fallback: null }); // in older files, unused
  return { replacement, scheme };
}

/** Splits into runs of word characters, and runs of other non-space characters. */
function splitWords({ text, first }: Piece, word: CodePointSet, space: CodePointSet): Piece[] {
  const pieces: Piece[] = [];
  const kindAt = (index: number) => {
    const point = text.codePointAt(index) as number;
    return word.has(point) ? "word" : space.has(point) ? "space" : "other";
  };
  for (let start = 0; start < text.length;) {
    const kind = kindAt(start);
    let end = start;
    do end += (text.codePointAt(end) as number) > 0xffff ? 2 : 1;
    while (end < text.length && kindAt(end) === kind);
    if (kind !== "space") pieces.push({ text: text.slice(start, end), first: first && start === 0 });
    start = end;
  }
  return pieces;
}
