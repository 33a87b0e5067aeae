// Compares the table of framework tags with the publishers' own files:
//
//   node scripts/frameworks.mjs FOLDER
//
// FOLDER has what of these is to be compared: ATLAS.yaml (mitre-atlas/atlas-data, dist/), GenAI-LLM-Top10 (a checkout of
// GenAI-Security-Project/GenAI-LLM-Top10), Table_of_Content.md (of the OWASP Top 10 for Agentic Applications 2026), and
// NIST.AI.600-1.txt (pdftotext of https://doi.org/10.6028/NIST.AI.600-1). Needs `npm run build`.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parse } from "yaml";

/** The entries of each framework in the publishers' files, by id; null where the file is missing. */
const PUBLISHED = {
  "owasp-llm-2025": (folder) => ofLLM(folder, "2025"),
  "owasp-llm-2026": (folder) => ofLLM(folder, "2026/final"),
  "owasp-agentic-2026": (folder) => ofText(join(folder, "Table_of_Content.md"), /\b(ASI\d\d): (.+?) \d+$/gmu),
  "mitre-atlas": ofAtlas,
  "nist-ai-600-1": (folder) =>
    ofText(join(folder, "NIST.AI.600-1.txt"), /^[-\s]*(2\.\d+)\. +(.+?)(?: *\.{3,} *\d+)?\s*$/gmu),
};

function ofText(path, pattern) {
  if (!existsSync(path)) return null;
  const entries = [...readFileSync(path, "utf8").matchAll(pattern)].map(([, id, name]) => [id, name]);
  // A heading repeats the table of contents.
  return { entries: new Map(entries.reverse()) };
}

function ofLLM(folder, year) {
  const path = join(folder, "GenAI-LLM-Top10", year);
  if (!existsSync(path)) return null;
  const files = readdirSync(path).filter((name) => /^LLM(?!00)\d\d_.*\.md$/u.test(name));
  return {
    entries: new Map(
      files.map((name) => {
        const [, id, title] =
          /^#+ (LLM\d\d:\d{4}) (.*\S)/u.exec(readFileSync(join(path, name), "utf8")) ?? [];
        return [id, title];
      }),
    ),
  };
}

function ofAtlas(folder) {
  const path = join(folder, "ATLAS.yaml");
  if (!existsSync(path)) return null;
  const { version, matrices } = parse(readFileSync(path, "utf8"));
  return { version, entries: new Map(matrices[0].techniques.map(({ id, name }) => [id, name])) };
}

/**
 * Compares frameworks with the files of a folder.
 *
 * @returns a line for each difference, and the frameworks that have no file
 */
export function compareFrameworks(frameworks, folder) {
  const differences = [];
  const missing = [];
  for (const [name, { version, entries }] of Object.entries(frameworks)) {
    const published = PUBLISHED[name]?.(folder) ?? null;
    if (published === null) {
      missing.push(name);
      continue;
    }
    if (published.version !== undefined && published.version !== version)
      differences.push(`${name}: version ${version}, published ${published.version}`);
    for (const id of new Set([...Object.keys(entries), ...published.entries.keys()])) {
      const [own, theirs] = [entries[id], published.entries.get(id)];
      if (own !== theirs)
        differences.push(`${name}/${id}: ${own ?? "missing"}, published ${theirs ?? "nothing"}`);
    }
  }
  return { differences, missing };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const [folder] = process.argv.slice(2);
  if (folder === undefined || !existsSync(folder)) {
    console.error("usage: node scripts/frameworks.mjs FOLDER (see the head of the script)");
    process.exit(2);
  }
  const { FRAMEWORKS } = await import("../packages/records/dist/gate/frameworks.js");
  const { differences, missing } = compareFrameworks(FRAMEWORKS, folder);
  for (const line of differences) console.log(line);
  const compared = Object.keys(FRAMEWORKS).length - missing.length;
  console.log(
    `${differences.length} differences in ${compared} frameworks; no file for ${missing.join(", ") || "none"}`,
  );
  process.exit(differences.length > 0 || compared === 0 ? 1 : 0);
}
