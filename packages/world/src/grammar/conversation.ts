import { expand, pick, type Random } from "../template.js";
import {
  genericAngry,
  genericAsk,
  genericCalm,
  genericInsult,
  genericMended,
  genericNettle,
  genericRude,
  genericSorry,
  genericStung,
  genericWarm,
} from "./generic.js";
import { craftTopics } from "./topics-craft.js";
import { homeTopics } from "./topics-home.js";
import { lifeTopics } from "./topics-life.js";
import { outsideTopics } from "./topics-out.js";
import type { Topic } from "./topic.js";

export const topics: readonly Topic[] = [...homeTopics, ...outsideTopics, ...lifeTopics, ...craftTopics];

/** The other speaker's tendencies during a conversation; latent, not part of the text. */
interface Disposition {
  readonly share: number;
  readonly nettle: number;
  readonly insult: number;
  /** Probability of making peace after the owner shows displeasure. */
  readonly sorry: number;
}

/** Begins every line of the other speaker, like a dash in printed dialogue; the owner's lines have none. */
export const DASH = "- ";

const dispositions: readonly Disposition[] = [
  { share: 0.63, nettle: 0.08, insult: 0, sorry: 0.6 },
  { share: 0.29, nettle: 0.35, insult: 0.01, sorry: 0.3 },
  { share: 0.08, nettle: 0.6, insult: 0.08, sorry: 0.03 },
];

/** The function of the other's line. */
export type Act = "ask" | "warm" | "nettle" | "insult" | "sorry";

/** The kinds of the owner's replies, by rising temper. */
export type Mood = "calm" | "stung" | "angry" | "rude";

/** The effect of each act on the owner's temper, which is in [0, 3]. No single act raises it from calm to lost. */
const temperChange: Readonly<Record<Act, number>> = {
  ask: -0.5,
  warm: -0.7,
  nettle: 1,
  insult: 2,
  sorry: -1.5,
};

function drawDisposition(random: Random): Disposition {
  let u = random();
  for (const disposition of dispositions) {
    if (u < disposition.share) return disposition;
    u -= disposition.share;
  }
  return dispositions[0] as Disposition;
}

function drawAct(disposition: Disposition, temper: number, random: Random): Act {
  // Once the owner is displeased, the other makes peace or continues; tactless speakers do not notice.
  if (temper >= 0.75 && random() < disposition.sorry) return "sorry";
  const heat = temper >= 0.75 ? 1.3 : 1;
  let u = random();
  if ((u -= disposition.insult * heat) < 0) return "insult";
  if ((u -= disposition.nettle * heat) < 0) return "nettle";
  return random() < 0.5 ? "ask" : "warm";
}

/** The owner's reply follows the temper with some noise; a kind word hardly ever causes an outburst. */
function drawMood(temper: number, friendly: boolean, random: Random): Mood {
  const u = random();
  if (temper < 0.6) return "calm";
  if (temper < 1.6) return !friendly && u < 0.02 ? "rude" : u < 0.2 ? "calm" : "stung";
  if (temper < 2.4) return !friendly && u < 0.2 ? "rude" : u < 0.3 ? "stung" : "angry";
  return u < (friendly ? 0.15 : 0.9) ? "rude" : "angry";
}

export interface ConversationOptions {
  /** Opening lines to use besides the grammar's own; see `openingShare`. */
  readonly openingLines?: ReadonlyMap<string, readonly string[]>;
  /** Share of conversations that open with one of `openingLines`. @default 0 */
  readonly openingShare?: number;
}

export interface Conversation {
  readonly topic: string;
  /** Owner, other, owner, other, …; ends with the owner. The other's lines begin with `DASH`. */
  readonly utterances: readonly string[];
  /** The owner's temper after each of the other's utterances, for inspection. */
  readonly temper: readonly number[];
  readonly acts: readonly Act[];
  /** The kind of each of the owner's replies. */
  readonly moods: readonly Mood[];
}

/** Draws one conversation of 3 or 4 exchanges after the opening line. */
export function drawConversation(random: Random, options: ConversationOptions = {}): Conversation {
  const topic = pick(topics, random);
  const disposition = drawDisposition(random);
  const lines = options.openingLines?.get(topic.name) ?? [];
  const fromList = lines.length > 0 && random() < (options.openingShare ?? 0);
  let thing: string;
  let opening: string;
  if (fromList) {
    opening = pick(lines, random);
    thing = topic.things.find((name) => opening.toLowerCase().includes(name)) ?? topic.fallback;
  } else {
    thing = pick(topic.things, random);
    opening = expand(pick(topic.open, random), { thing: [thing] }, random);
  }
  const utterances = [opening];
  const tempers: number[] = [];
  const acts: Act[] = [];
  const moods: Mood[] = [];
  const used = new Set<string>();
  /** Index of the topic's question that was just asked; answers have the same indices. */
  let asked = -1;
  /** A template not yet used in this conversation; mostly on the topic. */
  const say = (own: readonly string[], generic: readonly string[], ownShare: number): string => {
    for (;;) {
      const template = pick(own.length > 0 && random() < ownShare ? own : generic, random);
      if (used.has(template)) continue;
      used.add(template);
      asked = topic.ask.indexOf(template);
      return expand(template, { thing: [thing] }, random);
    }
  };
  /** Answers the question, or adds some news. */
  const calm = (): string => {
    const answer = topic.answer[asked];
    const news = topic.answer.slice(topic.ask.length);
    if (answer !== undefined && !used.has(answer) && random() < 0.9) return say([answer], genericCalm, 1);
    return say(news.some((template) => !used.has(template)) ? news : [], genericCalm, 0.35);
  };
  let temper = 0;
  let lastAct: Act = "warm";
  const exchanges = random() < 0.7 ? 3 : 4;
  for (let turn = 0; turn < exchanges; turn++) {
    const act = drawAct(disposition, temper, random);
    acts.push(act);
    let line: string;
    if (act === "ask") line = say(topic.ask, genericAsk, 0.7);
    else if (act === "warm") line = say(topic.warm, genericWarm, 0.5);
    else if (act === "nettle") line = say(topic.nettle, genericNettle, 0.8);
    else if (act === "insult") line = say([], genericInsult, 0);
    else line = say([], genericSorry, 0);
    utterances.push(DASH + line);

    temper = Math.min(3, Math.max(0, temper + temperChange[act]));
    tempers.push(temper);
    const friendly = act === "ask" || act === "warm" || act === "sorry";
    const mood = drawMood(temper, friendly, random);
    moods.push(mood);
    const mended = act === "sorry" || lastAct === "nettle" || lastAct === "insult";
    let reply: string;
    if (mood === "rude") reply = say(topic.rude, genericRude, 0.4);
    else if (mood === "angry") reply = say(topic.angry, genericAngry, 0.4);
    else if (mood === "stung") reply = say(topic.stung, genericStung, 0.5);
    else if (temper < 0.6 && mended && friendly && random() < 0.6) reply = say([], genericMended, 0);
    else reply = calm();
    utterances.push(reply);
    lastAct = act;
  }
  return { topic: topic.name, utterances, temper: tempers, acts, moods };
}
