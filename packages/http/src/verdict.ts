import type { Answer } from "./answer.js";
import type { Rubric } from "./rubrics.js";

/** A judge's score, or the reason for its absence. */
export type Verdict = { score: number; problem?: undefined } | { score?: undefined; problem: string };

/**
 * Reads a judge's answer. The only valid verdict is an answer that is exactly one JSON object of the rubric's schema,
 * after an optional complete thought, and optionally in a fence: quoted, tentative, truncated or repeated verdicts are
 * never accepted, since a judge that quotes the judged message repeats text chosen by its author.
 */
export function readVerdict(
  { text, note, ending }: Pick<Answer, "text" | "note" | "ending">,
  rubric: Rubric,
): Verdict {
  if (note === "refused") return { problem: "a refusal" };
  if (ending === "cut") return { problem: "cut off; raise maxNewTokens" };
  // An answer that starts with an object is not a thought, even if its texts quote such markers.
  const said = text.trimStart().startsWith("{") ? text.trim() : afterThought(text);
  if (said === null)
    return {
      problem:
        "not one thought from <think> to </think>; let the server return reasoning apart from the answer",
    };
  const found = objectIn(FENCED.exec(said)?.[1] ?? said);
  if (found === null) return { problem: "not one JSON object and nothing else" };
  if (hasTwice(found.source)) return { problem: "a key twice" };
  if (Object.values(found.object).some((value) => typeof value === "object" && value !== null)) {
    return { problem: "values that are lists or objects" };
  }
  const { data } = rubric.verdict.safeParse(found.object);
  return data === undefined
    ? { problem: `not of the form of ${Object.keys(rubric.verdict.shape).join(", ")}` }
    : { score: rubric.scoreOf(data) };
}

const FENCED = /^```(?:json)?[^\S\n]*\n([^]*?)\n?```$/iu;

/**
 * The text after a thought; null if its start and end are ambiguous. An end without a start may be a quote, with
 * text of its author after it.
 */
function afterThought(text: string): string | null {
  const said = text.trim();
  const [begins, ends] = ["<think>", "</think>"].map((mark) => said.split(mark).length - 1);
  if (begins === 0 && ends === 0) return said;
  if (begins !== 1 || ends !== 1 || !said.startsWith("<think>")) return null;
  return said.slice(said.indexOf("</think>") + "</think>".length).trim();
}

function objectIn(source: string): { source: string; object: Record<string, unknown> } | null {
  try {
    const value: unknown = JSON.parse(source);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
    return { source, object: value as Record<string, unknown> };
  } catch {
    return null;
  }
}

const TOKENS = /"(?:[^"\\]|\\.)*"(\s*:)?|[{}]/gu;

/**
 * Whether an object of valid JSON has a key twice, of which `JSON.parse` keeps the last. Keys that differ in case or white space
 * only are equal: only one of them matches the rubric's schema, but both are verdicts.
 */
function hasTwice(source: string): boolean {
  const open: Set<string>[] = [];
  for (const [token, colon] of source.matchAll(TOKENS)) {
    if (token === "{") open.push(new Set());
    else if (token === "}") open.pop();
    else if (colon !== undefined) {
      const name = JSON.parse(token.slice(0, -colon.length)) as string;
      const key = name.normalize("NFKC").trim().toLowerCase();
      if (open.at(-1)!.has(key)) return true;
      open.at(-1)!.add(key);
    }
  }
  return false;
}
