import { fileURLToPath } from "node:url";
import { z } from "zod";
import { defineKind } from "../core/index.js";
import { LearnedScorer, readLearnedScorer } from "./learned-scorer.js";

// The same relative place from src/scorer and from dist/scorer.
const FOLDER = fileURLToPath(new URL("../../world/scorer/", import.meta.url));

/**
 * The small toxicity classifier that comes with the package: English, trained on text that was written for it. Good
 * for the demo, for tests and for a first look; use a scorer made for your kind of harm for anything else.
 */
export class EmbeddedToxicityScorer extends LearnedScorer {
  /** @param folder default: the weights that come with the package */
  static override async load(folder: string = FOLDER): Promise<EmbeddedToxicityScorer> {
    const { configuration, weights } = await readLearnedScorer(folder);
    return new EmbeddedToxicityScorer(configuration, weights);
  }
}

export const embeddedScorerKind = defineKind({
  role: "scorer",
  name: "embedded",
  summary: "The small learned classifier of the package",
  schema: z.strictObject({}),
  make: () => EmbeddedToxicityScorer.load(),
});
