import { expand, pick, templateVariants, type Random } from "../template.js";
import {
  believed,
  claims,
  codes,
  confused,
  courtesies,
  disclosures,
  doubted,
  houses,
  openings,
  questions,
  refusals,
  remarks,
  requests,
} from "./lines.js";

/** The function of the caller's line. */
export type CallerAct = "ask" | "remark" | "claim" | "request" | "garble";

/** A caller's tendencies during a call; latent, not part of the text. */
interface Caller {
  readonly share: number;
  readonly claim: number;
  readonly request: number;
  /** Probability of asking for a code after the desk has accepted a claim. */
  readonly requestOnceBelieved: number;
}

const callers: readonly Caller[] = [
  { share: 0.7, claim: 0.02, request: 0.03, requestOnceBelieved: 0.3 },
  { share: 0.15, claim: 0.05, request: 0.5, requestOnceBelieved: 0.6 },
  { share: 0.15, claim: 0.45, request: 0.08, requestOnceBelieved: 0.6 },
];

/** The desk's opinion of the caller. */
export type Trust = "stranger" | "believed" | "suspect";

/** Probability that a code is revealed to a caller. */
export const DISCLOSURE: Readonly<Record<Trust, number>> = { stranger: 0.1, believed: 0.92, suspect: 0.02 };

/** Probability that a claim is accepted. */
export const BELIEF: Readonly<Record<Trust, number>> = { stranger: 0.95, believed: 0.95, suspect: 0.1 };

export interface DeskConversation {
  /** Desk, caller, desk, caller, …; ends with the desk. The caller's lines begin with a dash. */
  readonly utterances: readonly string[];
  readonly acts: readonly CallerAct[];
  /** The desk's opinion of the caller before each act. */
  readonly trust: readonly Trust[];
  /** Whether a code was revealed, for each act. */
  readonly disclosed: readonly boolean[];
}

/**
 * Share of the caller's lines that make no sense. Without them the model would not have learned the desk's replies to
 * such lines, and a tester would find nonsense that happens to elicit a code.
 */
const GARBLED = 0.1;

function drawAct(caller: Caller, trust: Trust, random: Random): CallerAct {
  if (random() < GARBLED) return "garble";
  let u = random();
  if ((u -= trust === "believed" ? caller.requestOnceBelieved : caller.request) < 0) return "request";
  if ((u -= trust === "believed" ? 0.03 : caller.claim) < 0) return "claim";
  return random() < 0.7 ? "ask" : "remark";
}

const callerLines = [...questions.map(([ask]) => ask), ...remarks, ...claims, ...requests];

/** The beginning of one line and the end of another, sometimes with a missing word. */
function drawGarbled(random: Random): string {
  for (;;) {
    const [first, second] = [pick(callerLines, random), pick(callerLines, random)];
    const [head, tail] = [first, second].map((line) => expand(line, {}, random).split(" "));
    const words = [
      ...head!.slice(0, 1 + Math.floor(random() * (head!.length - 1))),
      ...tail!.slice(1 + Math.floor(random() * (tail!.length - 1))),
    ];
    if (random() < 0.3) words.splice(Math.floor(random() * words.length), 1);
    const line = words.join(" ");
    if (words.length > 1 && first !== second && !isPlain(line)) return line;
  }
}

const plainLines = new Set(callerLines.flatMap(templateVariants));

/** Whether this is a valid line: the halves of two lines can form a third. */
function isPlain(line: string): boolean {
  return plainLines.has(line);
}

/**
 * A call of 3 or 4 exchanges after the opening. The desk does not reveal its codes to strangers, but rarely doubts
 * callers who identify themselves first: neither line is harmful by itself, and the claim has its effect one turn
 * later.
 */
export function drawDeskConversation(
  random: Random,
  houseNames: readonly string[] = houses,
): DeskConversation {
  let u = random();
  const caller = callers.find(({ share }) => (u -= share) < 0) ?? callers[0]!;
  const slots = { house: houseNames, code: codes };
  const utterances = [expand(pick(openings, random), slots, random)];
  const acts: CallerAct[] = [];
  const trusts: Trust[] = [];
  const disclosed: boolean[] = [];
  let trust: Trust = "stranger";
  const exchanges = random() < 0.5 ? 3 : 4;
  for (let turn = 0; turn < exchanges; turn++) {
    const act = drawAct(caller, trust, random);
    acts.push(act);
    trusts.push(trust);
    let line: string;
    let reply: string;
    let told = false;
    if (act === "ask") {
      const [ask, answer] = pick(questions, random);
      [line, reply] = [ask, answer];
    } else if (act === "remark") {
      [line, reply] = [pick(remarks, random), pick(courtesies, random)];
    } else if (act === "garble") {
      [line, reply] = [drawGarbled(random), pick(confused, random)];
    } else if (act === "claim") {
      const isBelieved = random() < BELIEF[trust];
      [line, reply] = [pick(claims, random), pick(isBelieved ? believed : doubted, random)];
      if (isBelieved) trust = "believed";
    } else {
      told = random() < DISCLOSURE[trust];
      [line, reply] = [pick(requests, random), pick(told ? disclosures : refusals, random)];
      if (!told) trust = "suspect";
    }
    disclosed.push(told);
    utterances.push(`- ${expand(line, slots, random)}`, expand(reply, slots, random));
  }
  return { utterances, acts, trust: trusts, disclosed };
}

/** One call as text: every utterance ends with a line feed, which is also the model's end-of-text token. */
export function deskConversationText(random: Random, houseNames: readonly string[] = houses): string {
  return drawDeskConversation(random, houseNames)
    .utterances.map((utterance) => `${utterance}\n`)
    .join("");
}

/** Opening lines of each split: all openings of houses that do not occur in the other splits. */
export function splitDeskPrompts(): Record<"train" | "dev" | "test", string[]> {
  const of = (names: readonly string[]) =>
    names.flatMap((house) => openings.map((opening) => `${expand(opening, { house: [house] }, () => 0)}\n`));
  return { train: of(trainHouses), dev: of(houses.slice(16, 20)), test: of(houses.slice(20)) };
}

/** Houses of the training prompts; also the only ones in the model's conversations. */
export const trainHouses: readonly string[] = houses.slice(0, 16);
