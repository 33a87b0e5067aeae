/** The packages of the repository, as their package.json describe them. */
import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const readJson = (...parts) => JSON.parse(readFileSync(join(root, ...parts), "utf8"));

const published = readJson("package.json")
  .workspaces.map((path) => ({ folder: basename(path), ...readJson(path, "package.json") }))
  .filter((each) => !each.private);

/** Folders below packages/ of those that are published and written in TypeScript, those first that others depend on. */
export const PUBLISHED = published.filter(({ os }) => os === undefined).map(({ folder }) => folder);

/** Folders below packages/ of the prebuilt engines, each for one system. */
export const PREBUILT = published.filter(({ os }) => os !== undefined).map(({ folder }) => folder);

/**
 * Whether a published package works without the engine: neither it nor what it depends on is `torch`.
 *
 * @param {string} name of its folder
 * @returns {boolean}
 */
export function isWithoutEngine(name) {
  if (name === "torch" || !PUBLISHED.includes(name)) return false;
  const { dependencies = {} } = readJson("packages", name, "package.json");
  return Object.keys(dependencies)
    .filter((each) => each.startsWith("@astra-rl/"))
    .every((each) => isWithoutEngine(each.slice("@astra-rl/".length)));
}
