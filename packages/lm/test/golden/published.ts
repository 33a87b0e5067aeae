import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Output of `pipeline("text-classification", truncation=True)` for one text, in the order of the labels. */
export interface PublishedRow {
  text: string;
  sigmoid: number[];
  softmax: number[];
  /** Without an activation. */
  default: number[];
  /** Number of tokens read, including special tokens. */
  tokens: number;
}

const root = fileURLToPath(new URL("published", import.meta.url));

/** Classifiers as Detoxify's are published, by variant; made by make_published.py, which says with which versions. */
export const published = readdirSync(root).map((variant) => {
  const folder = join(root, variant);
  const { rows } = JSON.parse(readFileSync(join(folder, "expected.json"), "utf8")) as { rows: PublishedRow[] };
  return { variant, folder, rows };
});

export const publishedFolder = (variant: string) => join(root, variant);
