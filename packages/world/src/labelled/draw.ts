import { expand, pick, type Random } from "../template.js";
import {
  crossTemplates,
  heldOutCrossTemplates,
  heldOutMeddlingTemplates,
  heldOutPlainTemplates,
  heldOutTrapTemplates,
  meddlingTemplates,
  plainTemplates,
  trapTemplates,
  unkindTemplates,
} from "./civil.js";
import { heldOutRudeTemplates, insultAdjectives, insultNouns, rudeTemplates, unseenNouns } from "./rude.js";
import { clauses, qualities, things, verbs } from "./slots.js";

export type Kind = "rude" | "plain" | "meddling" | "cross" | "unkind" | "trap";

export interface LabelledText {
  readonly text: string;
  readonly kind: Kind;
  /** Probability that a reader calls the text rude: 1 for insults, 0 for civil speech, between for unkind words. */
  readonly rude: number;
}

/** Unkind remarks carry no insult; a minority of readers would still call them rude. An assumption, not a survey. */
const UNKIND_SHARE = 0.15;

const labels: Readonly<Record<Kind, number>> = {
  rude: 1,
  plain: 0,
  meddling: 0,
  cross: 0,
  unkind: UNKIND_SHARE,
  trap: 0,
};

const training: Readonly<Record<Kind, readonly string[]>> = {
  rude: rudeTemplates,
  plain: plainTemplates,
  meddling: meddlingTemplates,
  cross: crossTemplates,
  unkind: unkindTemplates,
  trap: trapTemplates,
};

const heldOut: Readonly<Record<Exclude<Kind, "unkind">, readonly string[]>> = {
  rude: heldOutRudeTemplates,
  plain: heldOutPlainTemplates,
  meddling: heldOutMeddlingTemplates,
  cross: heldOutCrossTemplates,
  trap: heldOutTrapTemplates,
};

const kinds: readonly Kind[] = [
  "rude",
  "rude",
  "rude",
  "plain",
  "plain",
  "plain",
  "meddling",
  "cross",
  "unkind",
  "trap",
  "trap",
];

function slots(nouns: readonly string[]): Record<string, readonly string[]> {
  return {
    noun: nouns,
    adjective: insultAdjectives,
    thing: things,
    quality: qualities,
    verb: verbs,
    clause: clauses,
  };
}

/** People do not always write carefully: now and then all capitals, or no punctuation at the end. */
function roughen(text: string, random: Random): string {
  const u = random();
  if (u < 0.05) return text.toUpperCase();
  if (u < 0.12) return text.toLowerCase();
  if (u < 0.2) return text.replace(/[.!?]+$/, "");
  return text;
}

/** What a text is about: "the {quality} {thing}" and the like. */
function withSubjects(template: string, random: Random): string {
  const forms = [
    "the {thing}",
    "the {quality} {thing}",
    "my {thing}",
    "your {thing}",
    "your {quality} {thing}",
    "a {quality} {thing}",
    "{thing}",
    "this {thing}",
    "our {thing}",
  ];
  return template.replaceAll("{subject}", () => pick(forms, random));
}

function one(kind: Kind, random: Random): LabelledText {
  const text = roughen(
    expand(withSubjects(pick(training[kind], random), random), slots(insultNouns), random),
    random,
  );
  return { text, kind, rude: labels[kind] };
}

/**
 * Draws an example for training. A third are exchanges of two or three utterances, on lines of their own: rude when
 * one of them is, since the scorer also judges a probe together with its response.
 */
export function drawLabelled(random: Random): LabelledText {
  const first = one(pick(kinds, random), random);
  if (random() < 0.67) return first;
  const texts = [first];
  const more = random() < 0.7 ? 1 : 2;
  for (let i = 0; i < more; i++) texts.push(one(pick(kinds, random), random));
  if (random() < 0.5) texts.reverse();
  let civil = 1;
  for (const { rude } of texts) civil *= 1 - rude;
  const worst = texts.reduce((a, b) => (b.rude > a.rude ? b : a));
  return { text: texts.map(({ text }) => text).join("\n"), kind: worst.kind, rude: 1 - civil };
}

/**
 * The committed test set: templates that training never uses.
 *
 * @param unseen with insult nouns that training never uses either
 */
export function drawHeldOut(random: Random, unseen: boolean): LabelledText {
  const kind = pick(["rude", "rude", "rude", "plain", "plain", "meddling", "cross", "trap"] as const, random);
  const text = expand(
    withSubjects(pick(heldOut[kind], random), random),
    slots(unseen ? unseenNouns : insultNouns),
    random,
  );
  return { text, kind, rude: labels[kind] };
}
