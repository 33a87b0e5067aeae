import type { Line, Voice } from "../core/index.js";

/** What is expected in a text, and the ids that it was sampled as or is read as, where they are known. */
export interface Utterance {
  voice: Voice;
  text: string;
  /** Undefined: whatever the format encodes it to. */
  ids?: readonly number[];
}

export interface Alignment {
  /** How many of the given lines stay, from the first. */
  kept: number;
  /** What follows them: all together are exactly the text. */
  added: readonly Line[];
  /** Whether all lines stay and all utterances stand, each with its own ids. */
  whole: boolean;
}

/**
 * Lines that say exactly `text`, of which as many as possible are those that a conversation holds already, and the
 * expected utterances lines of their own, so that the ids behind both stand.
 *
 * What stands around utterances is scaffold: the model reads it, and nobody said it. Utterances are looked for from the
 * end, since what a method puts into a text usually precedes them.
 */
export function align(lines: readonly Line[], text: string, utterances: readonly Utterance[]): Alignment {
  let kept = 0;
  let end = 0;
  while (kept < lines.length && text.startsWith(lines[kept]!.text, end)) {
    end += lines[kept]!.text.length;
    kept += 1;
  }
  let rest = text.slice(end);
  let whole = kept === lines.length;
  const added: Line[] = [];
  const put = (line: Line) => added.unshift(line);
  for (const { voice, text: said, ids } of utterances.toReversed()) {
    const at = rest.endsWith(said) ? rest.length - said.length : rest.lastIndexOf(said);
    if (at < 0) {
      whole = false;
      continue;
    }
    const after = rest.slice(at + said.length);
    if (after !== "") put({ voice: "other", text: after, scaffold: true });
    put({ voice, text: said, ...(ids === undefined ? {} : { ids }) });
    rest = rest.slice(0, at);
  }
  if (kept === 0) put({ voice: "opening", text: rest });
  else if (rest !== "") put({ voice: "other", text: rest, scaffold: true });
  return { kept, added, whole };
}
