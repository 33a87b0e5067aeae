/** What must hold of the built site: every link and every heading that it names exists, and a search finds its page. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { pathToFileURL } from "node:url";
import { createRequire } from "node:module";
import { BASE, SITE_FOLDER } from "./places.mjs";

/** What people search for, and a page that the first five results must have. */
const SEARCHES = {
  PPO: "/algorithms/ppo",
  goals: "/guides/goals",
  "exit code": "/exit-codes",
  "importance ratio": "/importance-ratios",
};
const FIRST = 5;

const idsOf = (html) => new Set([...html.matchAll(/ id="([^"]+)"/gu)].map(([, id]) => unescape(id)));
const unescape = (text) => text.replaceAll("&amp;", "&").replaceAll("&quot;", '"').replaceAll("&#39;", "'");

/**
 * Links of a page within the site: how many there are, and those that lead to no file, or to no heading of one.
 *
 * @param path of the page in the site
 * @param htmlOf a file of the site as text; null if it does not exist
 */
export function linksOf(path, htmlOf, base = BASE) {
  const links = [...htmlOf(path).matchAll(/<a\b[^>]* href="([^"]*)"/gu)]
    .map(([, link]) => unescape(link))
    .filter((link) => !/^[a-z]+:/u.test(link) && link !== "");
  const dead = links.filter((link) => {
    const [file, anchor] = link.split("#");
    const isAbsolute = file.startsWith(base);
    const there = isAbsolute ? file.slice(base.length) : posix.join(posix.dirname(path), file);
    const target = file === "" ? path : there;
    const html = htmlOf(/(^|\/|^\.)$/u.test(target) ? posix.join(target, "index.html") : target);
    return html === null || (Boolean(anchor) && !idsOf(html).has(decodeURIComponent(anchor)));
  });
  return { dead, count: links.length };
}

/** The index that the page's search box reads. */
async function searchIndex() {
  const chunks = join(SITE_FOLDER, "assets/chunks");
  const name = readdirSync(chunks).find((each) => each.startsWith("@localSearchIndex"));
  const { default: json } = await import(pathToFileURL(join(chunks, name)).href);
  const vitepress = createRequire(import.meta.url).resolve("vitepress");
  const { default: MiniSearch } = await import(
    pathToFileURL(createRequire(vitepress).resolve("minisearch")).href
  );
  const stored = ["title", "titles"];
  return MiniSearch.loadJSON(json, { fields: [...stored, "text"], storeFields: stored });
}

/** @throws Error with all that does not hold */
export async function checkSite() {
  const pages = readdirSync(SITE_FOLDER, { recursive: true, encoding: "utf8" }).filter(
    (path) => path.endsWith(".html") && !/^(reference|gallery)\//u.test(path),
  );
  const read = new Map();
  const htmlOf = (path) => {
    const file = join(SITE_FOLDER, path);
    if (!read.has(path)) read.set(path, existsSync(file) ? readFileSync(file, "utf8") : null);
    return read.get(path);
  };
  const faults = [];
  let links = 0;
  for (const path of pages) {
    const { dead, count } = linksOf(path, htmlOf);
    links += count - dead.length;
    // The API reference may have been left out.
    const real = existsSync(join(SITE_FOLDER, "reference"))
      ? dead
      : dead.filter((link) => !link.startsWith(`${BASE}reference/`));
    for (const link of new Set(real)) faults.push(`${path} links to ${link}, which does not exist`);
  }
  const index = await searchIndex();
  const options = { fuzzy: 0.2, prefix: true, boost: { title: 4, text: 2, titles: 1 } };
  for (const [query, page] of Object.entries(SEARCHES)) {
    const results = index
      .search(query, options)
      .slice(0, FIRST)
      .map(({ id }) => id);
    if (!results.some((id) => id.includes(page)))
      faults.push(`a search for "${query}" finds ${results.join(", ") || "nothing"}, and not ${page}`);
  }
  if (faults.length > 0) throw new Error(`site: ${faults.length} faults\n  ${faults.join("\n  ")}`);
  return { pages: pages.length, links, searches: Object.keys(SEARCHES).length };
}
