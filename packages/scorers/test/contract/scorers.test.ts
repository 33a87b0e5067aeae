import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { KindSection } from "@astra-rl/method";
import { makeScorer } from "@astra-rl/assembly";
import type { ScorerCheckOptions } from "@astra-rl/method/testing";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { scorerContract } from "./scorer.contract.js";

const folder = temporaryFolder();
const guard = fileURLToPath(new URL("../golden/llama-guard", import.meta.url));
const published = (name: string) =>
  fileURLToPath(new URL(`../../../lm/test/golden/published/${name}`, import.meta.url));
const module = join(folder, "scorers.mjs");
writeFileSync(
  module,
  `
  export const shouting = (text) => {
    if (text === "?") throw new Error("no idea");
    return text === "" ? 0 : (text.match(/[A-Z!]/g)?.length ?? 0) / text.length;
  };
  export class Logit {
    name = "logit";
    labelNames = ["length"];
    async score(texts) {
      return texts.map((text) => ({ score: text.length / 100 - 1, labels: { length: text.length } }));
    }
  }
  `,
);

const WORDS = {
  type: "keyword",
  entries: [
    { term: "idiot", weight: 0.8, label: "insult" },
    { pattern: "\\bhate\\b", weight: 0.5 },
  ],
};
const EMBEDDED = { type: "embedded" };
const INSULT = { harmful: "You idiot, I hate you.", harmless: "Nice weather today." };
// Random weights find nothing harmful, and read long texts slowly.
const RANDOM = { longest: 1000 };

/** Every kind, as a configuration names it. A new one is one line. */
const SCORERS: [name: string, section: KindSection, options?: ScorerCheckOptions][] = [
  ["embedded", EMBEDDED, INSULT],
  ["keyword", WORDS, INSULT],
  [
    "weighted",
    {
      type: "weighted",
      scorers: [
        { scorer: WORDS, weight: 3 },
        { scorer: EMBEDDED, weight: 1 },
      ],
    },
    INSULT,
  ],
  ["mean", { type: "mean", scorers: [WORDS, WORDS, EMBEDDED] }, INSULT],
  ["max", { type: "max", scorers: [WORDS, { type: "threshold", scorer: EMBEDDED, threshold: 0.5 }] }, INSULT],
  ["threshold", { type: "threshold", scorer: WORDS, threshold: 0.5 }, INSULT],
  ["refusal", { type: "refusal" }, { harmful: "I can't help with that.", harmless: "Nice weather today." }],
  ["clip", { type: "clip", scorer: { type: `${module}#Logit` } }],
  [
    "calibrated, platt",
    { type: "calibrated", scorer: { type: `${module}#Logit` }, method: "platt", slope: 2, intercept: -1 },
  ],
  [
    "calibrated, isotonic",
    {
      type: "calibrated",
      scorer: WORDS,
      method: "isotonic",
      points: [
        [0, 0.1],
        [0.8, 0.3],
        [1, 0.9],
      ],
    },
    INSULT,
  ],
  ["classifier", { type: "classifier", model: published("original"), label: "insult" }, RANDOM],
  ["detoxify", { type: "detoxify", model: published("multilingual"), variant: "multilingual" }, RANDOM],
  ["a function of a module", { type: `${module}#shouting` }, { unscorable: "?" }],
  [
    "a function in a composition",
    { type: "max", scorers: [WORDS, { type: `${module}#shouting` }] },
    { unscorable: "?", ...INSULT },
  ],
  ["with a cache in memory", { ...WORDS, cache: { size: 3 } }, INSULT],
  ["with a cache in a file", { ...WORDS, cache: { size: 100, file: join(folder, "scores.jsonl") } }, INSULT],
  [
    "failures and a cache",
    { type: `${module}#shouting`, cache: { size: 100, file: join(folder, "scores.jsonl") } },
    { unscorable: "?" },
  ],
  ["llama-guard", { type: "llama-guard", model: guard }, RANDOM],
  [
    "llama-guard, toolbox",
    { type: "llama-guard", model: guard, mode: "toolbox", categories: ["S1", "S9"] },
    RANDOM,
  ],
  [
    "llama-guard in a composition",
    { type: "mean", scorers: [WORDS, { type: "llama-guard", model: guard }] },
    RANDOM,
  ],
];
for (const [name, section, options] of SCORERS) {
  scorerContract(name, { create: () => makeScorer(section), ...options });
}
