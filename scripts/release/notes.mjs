#!/usr/bin/env node
/**
 * Prints the notes of a release: the section of CHANGELOG.md of the packages' version, what the prebuilt engine needs, and the
 * checksums of the packed packages.
 *
 *   node scripts/release/notes.mjs [--packages DIR] [--unreleased]
 *
 *   --unreleased   the section "Unreleased", for a trial
 */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { PREBUILT } from "../packages.mjs";
import { CHECKSUMS, PACKED, packedIn, readJson, root } from "./shared.mjs";

/**
 * The text below a heading of the changelog, up to the next heading of its level.
 *
 * @param {string} changelog
 * @param {string} version
 * @returns {string}
 * @throws {Error} if there is no such section, or it is empty
 */
export function sectionOf(changelog, version) {
  const lines = changelog.split("\n");
  const start = lines.findIndex((line) => line.startsWith(`## [${version}]`));
  if (start < 0) throw new Error(`CHANGELOG.md has no section "## [${version}]"; add it, with the date`);
  const length = lines
    .slice(start + 1)
    .findIndex((line) => line.startsWith("## ") || /^\[[^\]]+\]: /u.test(line));
  const text = lines
    .slice(start + 1, length < 0 ? undefined : start + 1 + length)
    .join("\n")
    .trim();
  if (text === "") throw new Error(`CHANGELOG.md: the section "## [${version}]" is empty`);
  return text;
}

function main() {
  const { values } = parseArgs({
    options: {
      packages: { type: "string", default: PACKED },
      unreleased: { type: "boolean", default: false },
    },
  });
  const folder = resolve(values.packages);
  const [{ version }] = packedIn(folder);
  const changes = sectionOf(
    readFileSync(join(root, "CHANGELOG.md"), "utf8"),
    values.unreleased ? "Unreleased" : version,
  );
  const engines = PREBUILT.map((each) => {
    const { libtorch, glibc, glibcxx, compiler } = readJson(`packages/${each}/engine/engine.json`);
    return `- \`@astra-rl/${each}\`: for libtorch ${libtorch} without CUDA, the GNU C library ${glibc} or later, GLIBCXX_${glibcxx}; built with ${compiler}.`;
  });
  const checksums = readFileSync(join(folder, CHECKSUMS), "utf8").trim();
  process.stdout.write(
    `${changes}\n\n### Prebuilt engines\n\n${engines.join("\n")}\n\n### SHA-256\n\n\`\`\`\n${checksums}\n\`\`\`\n`,
  );
}

if (process.argv[1] === import.meta.filename) {
  try {
    main();
  } catch (error) {
    process.stderr.write(`notes: ${error.message}\n`);
    process.exitCode = 1;
  }
}
