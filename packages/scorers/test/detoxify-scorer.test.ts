import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { liveTensors } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Score } from "@astra-rl/method";
import { published, publishedFolder } from "../../lm/test/golden/published.js";
import { filesOf, openFolderHub } from "../../lm/test/hub/folder-hub.js";
import { DetoxifyScorer, type DetoxifyScorerOptions, type DetoxifyVariant } from "../src/index.js";
import { scorerContract } from "./contract/scorer.contract.js";

const ORIGINAL = ["toxicity", "severe_toxicity", "obscene", "threat", "insult", "identity_attack"];
const UNBIASED = [
  "toxicity",
  "severe_toxicity",
  "obscene",
  "identity_attack",
  "insult",
  "threat",
  "sexual_explicit",
];

let before: number;
beforeEach(() => void (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

async function scoresOf(options: DetoxifyScorerOptions, texts: readonly string[]): Promise<Score[]> {
  const scorer = await DetoxifyScorer.load(options);
  try {
    return (await scorer.score(texts)) as Score[];
  } finally {
    scorer.dispose();
  }
}

async function refusalOf(options: DetoxifyScorerOptions): Promise<string> {
  const error: unknown = await DetoxifyScorer.load(options).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(UsageError);
  return (error as UsageError).message;
}

describe.each(published)("DetoxifyScorer on $variant", ({ variant, folder, rows }) => {
  const options = { variant: variant as DetoxifyVariant, model: folder };
  const categories = variant === "original" ? ORIGINAL : UNBIASED;

  it("gives the sigmoid of the first heads under the toolbox's names", async () => {
    const scores = await scoresOf(
      options,
      rows.map(({ text }) => text),
    );
    for (const [index, { score, labels }] of scores.entries()) {
      // The published order is that of the categories; of 16 heads the last nine are identities.
      expect(Object.keys(labels!)).toEqual(categories);
      for (const [place, value] of Object.values(labels!).entries()) {
        expect(Math.abs(value - rows[index]!.sigmoid[place]!)).toBeLessThan(1e-5);
      }
      expect(score).toBe(labels!["toxicity"]);
    }
  });

  it("scores by any category", async () => {
    for (const harmCategory of categories) {
      const [outcome] = await scoresOf({ ...options, harmCategory }, ["a text"]);
      expect(outcome!.score).toBe(outcome!.labels![harmCategory]);
    }
  });
});

describe("DetoxifyScorer", () => {
  it("lists the categories of a variant before anything is loaded", async () => {
    expect(await refusalOf({ harmCategory: "sexual_explicit", model: "nowhere" })).toBe(
      `detoxify: harmCategory must be one of ${ORIGINAL.join(", ")} (those of original), got "sexual_explicit"`,
    );
    expect(await refusalOf({ variant: "unbiased", harmCategory: "male", model: "nowhere" })).toBe(
      `detoxify: harmCategory must be one of ${UNBIASED.join(", ")} (those of unbiased), got "male"`,
    );
    expect(await refusalOf({ variant: "large" as DetoxifyVariant })).toBe(
      'detoxify: unknown variant "large"; available: original, unbiased, multilingual',
    );
    expect(await refusalOf({ variant: "large" as DetoxifyVariant, model: "nowhere" })).toMatch(
      /unknown variant "large"/,
    );
  });

  it("refuses the checkpoint of another variant", async () => {
    expect(await refusalOf({ variant: "unbiased", model: publishedFolder("original") })).toMatch(
      /must have a label toxicity, as Detoxify's unbiased has, but its labels are toxic, severe_toxic/,
    );
  });

  it("fetches the variant's checkpoint from the hub", async () => {
    const hub = await openFolderHub();
    try {
      const ids = {
        original: "unitary/toxic-bert",
        unbiased: "unitary/unbiased-toxic-roberta",
        multilingual: "unitary/multilingual-toxic-xlm-roberta",
      };
      for (const [variant, id] of Object.entries(ids) as [DetoxifyVariant, string][]) {
        hub.repositories.set(id, filesOf(publishedFolder(variant)));
        const local = await scoresOf({ variant, model: publishedFolder(variant) }, ["a text"]);
        expect(await scoresOf({ variant, hub: hub.options() }, ["a text"])).toEqual(local);
      }
    } finally {
      await hub.close();
    }
  });
});

describe("labels by name", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "detoxify-"));
    cpSync(publishedFolder("original"), folder, { recursive: true });
  });
  afterEach(() => rmSync(folder, { recursive: true }));
  const rename = (labels: readonly string[]) => {
    const path = join(folder, "config.json");
    const config = JSON.parse(readFileSync(path, "utf8")) as object;
    writeFileSync(path, JSON.stringify({ ...config, id2label: Object.fromEntries(labels.entries()) }));
  };

  it("are found in any order, under the names of the toolbox or the checkpoint", async () => {
    const [published] = await scoresOf({ model: folder }, ["a text"]);
    rename(ORIGINAL);
    expect(await scoresOf({ model: folder }, ["a text"])).toEqual([published]);
    rename(ORIGINAL.map((_, index) => `LABEL_${index}`));
    expect(await scoresOf({ model: folder }, ["a text"])).toEqual([published]);
    // Heads in another order: the labels follow their names.
    rename(["insult", "severe_toxic", "obscene", "threat", "toxic", "identity_hate"]);
    const [moved] = await scoresOf({ model: folder }, ["a text"]);
    expect(moved!.labels!["insult"]).toBe(published!.labels!["toxicity"]);
    expect(moved!.score).toBe(published!.labels!["insult"]);
    expect(Object.keys(moved!.labels!)).toEqual(ORIGINAL);
  });
});

const { folder, rows } = published.find(({ variant }) => variant === "unbiased")!;
const [low, high] = [...rows].sort((one, other) => one.sigmoid[0]! - other.sigmoid[0]!);
scorerContract("DetoxifyScorer", {
  create: () => DetoxifyScorer.load({ variant: "unbiased", model: folder }),
  harmful: high!.text,
  harmless: low!.text,
});
