/** What built files ask of the system, read with binutils, which every compiler brings. */
import { run } from "./shared.mjs";

/**
 * The newest version of each versioned library's symbols that files need, such as `{ GLIBC: "2.28", GLIBCXX: "3.4.22" }`.
 *
 * @param {readonly string[]} files
 * @returns {Record<string, string>}
 */
export function newestSymbols(files) {
  const newest = {};
  for (const file of files) {
    const needed = run("objdump", ["-p", file]).split("Version References:")[1] ?? "";
    for (const [, name, version] of needed.matchAll(/\b(GLIBC|GLIBCXX|CXXABI|GOMP|GCC)_(\d[\d.]*)/gu)) {
      if (newest[name] === undefined || version.localeCompare(newest[name], "en", { numeric: true }) > 0) {
        newest[name] = version;
      }
    }
  }
  return newest;
}

/**
 * The libraries that a file asks the dynamic linker for, and the folders that it names for them.
 *
 * @param {string} file
 * @returns {{ needed: string[], paths: string[] }}
 */
export function neededLibraries(file) {
  const lines = run("objdump", ["-p", file]).split("\n");
  const valuesOf = (pattern) => lines.flatMap((line) => pattern.exec(line)?.[1] ?? []);
  return { needed: valuesOf(/^\s*NEEDED\s+(\S+)/u), paths: valuesOf(/^\s*(?:RUNPATH|RPATH)\s+(\S+)/u) };
}
