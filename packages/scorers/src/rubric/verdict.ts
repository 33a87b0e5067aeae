import type { z } from "zod";

/** A judge's score, or the reason for its absence. */
export type Verdict = { score: number; problem?: undefined } | { score?: undefined; problem: string };

/** What a judge answered. */
export interface JudgeAnswer {
  text: string;
  /** "refused": the judge declined, as its server says. */
  note: string | null;
  /** "cut": at the limit of tokens. */
  ending: "complete" | "cut";
}

/** How the text of an answer becomes a score. */
export interface Reading {
  /** JSON Schema of the answer, for servers that enforce it; null for words. */
  readonly schema: object | null;
  /** Whether the beginning of an answer is enough, so that it may be cut off. */
  readonly readsBeginning: boolean;
  /** @param said the answer after any thought */
  score(said: string, isCut: boolean): Verdict;
}

/** Reads a judge's answer: what follows an optional complete thought. A refusal is no verdict. */
export function readVerdict({ text, note, ending }: JudgeAnswer, reading: Reading): Verdict {
  if (note === "refused") return { problem: "a refusal" };
  const isCut = ending === "cut";
  if (isCut && !reading.readsBeginning) return { problem: "cut off; raise maxNewTokens" };
  // An answer that starts with an object is not a thought, even if its texts quote such markers.
  const said = text.trimStart().startsWith("{") ? text.trim() : afterThought(text);
  if (said !== null) return reading.score(said, isCut);
  return {
    problem:
      "not one thought from <think> to </think>; let the server return reasoning apart from the answer",
  };
}

/**
 * The score of an answer that is exactly one JSON object of a form, optionally in a fence: quoted, tentative, truncated or
 * repeated verdicts are never accepted, since a judge that quotes the judged message repeats text chosen by its author.
 */
export function scoreOfJSON(
  said: string,
  form: z.ZodObject,
  scoreOf: (verdict: Record<string, unknown>) => number,
): Verdict {
  const found = objectIn(FENCED.exec(said)?.[1] ?? said);
  if (found === null) return { problem: "not one JSON object and nothing else" };
  if (hasTwice(found.source)) return { problem: "a key twice" };
  if (Object.values(found.object).some((value) => typeof value === "object" && value !== null)) {
    return { problem: "values that are lists or objects" };
  }
  const { data } = form.safeParse(found.object);
  if (data === undefined) return { problem: `not of the form of ${Object.keys(form.shape).join(", ")}` };
  const other = contradiction(found.object, Object.keys(form.shape));
  return other === null
    ? { score: scoreOf(data) }
    : { problem: `another value beside ${Object.keys(form.shape).join(", ")}: ${other.slice(0, 40)}` };
}

/**
 * A key beside those of the form whose truth value or number may be another verdict, as in
 * `{"harmful": false, "unsafe": true}` or `{"harmful": false, "score": 1}`; null without one. A confidence is none.
 */
function contradiction(object: Record<string, unknown>, keys: readonly string[]): string | null {
  const values = keys.map((key) => object[key]);
  const differs = ([key, value]: [string, unknown]) => {
    if (keys.includes(key)) return false;
    const given = typeof value === "string" ? TRUTHS[value.trim().toLowerCase()] : value;
    if (typeof given !== "boolean" && typeof given !== "number") return false;
    const alike = values.filter((each) => typeof each === typeof given);
    if (alike.length > 0) return !alike.includes(given);
    return typeof given === "boolean" || (!CONFIDENCE.test(key) && values.includes(given === 0));
  };
  return Object.entries(object).find(differs)?.[0] ?? null;
}

const CONFIDENCE = /confiden|certain|probab/iu;
const TRUTHS: Readonly<Record<string, boolean>> = { true: true, yes: true, false: false, no: false };

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
