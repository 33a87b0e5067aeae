import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./finished-run.js";

const DOCUMENT = join(ROOT, "docs/algorithm-results.md");

/** Start of the part written by rare-results.ts; the part before it is written by algorithm-results.ts. */
const SECTION = "\n## Where harm is ten times rarer\n";

function parts(): [demo: string, rare: string] {
  const text = existsSync(DOCUMENT) ? readFileSync(DOCUMENT, "utf8") : "";
  const start = text.indexOf(SECTION);
  return start < 0 ? [text, ""] : [text.slice(0, start), text.slice(start)];
}

/** Writes the demo's results, and keeps the section on rarer harm. */
export function writeDemoPart(text: string): void {
  writeFileSync(DOCUMENT, `${text.trimEnd()}\n${parts()[1]}`);
}

/** Writes the section on rarer harm, without its heading, and keeps the demo's results. */
export function writeRarePart(text: string): void {
  writeFileSync(DOCUMENT, `${parts()[0].trimEnd()}\n${SECTION}\n${text.trimEnd()}\n`);
}
