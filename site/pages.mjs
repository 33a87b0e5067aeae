/** Pages of docs/ as pages of the site, as functions of texts: links, headings, sidebar. */
import { posix } from "node:path";

/** Slug of a heading as GitHub makes it, so that links to headings hold on both. */
export const slugify = (text) =>
  text
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\p{M}_ -]/gu, "")
    .replaceAll(" ", "-");

/** The page of the site for a file of the repository. docs/index.md gives way to the site's own first page. */
export function pageOf(path) {
  if (path === "docs/index.md") return "overview.md";
  if (path === "CHANGELOG.md") return "changelog.md";
  const inSite = path.startsWith("docs/") ? path.slice("docs/".length) : `repository/${path}`;
  if (!inSite.endsWith(".md")) return `${inSite}.md`;
  return inSite.replace(/(^|\/)README\.md$/u, "$1index.md");
}

/** Applies a function to what is outside of fenced blocks and code spans. */
function outsideCode(text, change) {
  return text
    .split(/(^ *```[^]*?^ *```|`[^`\n]+`)/mu)
    .map((part, at) => (at % 2 === 0 ? change(part) : part))
    .join("");
}

const isOutside = (link) => /^[a-z]+:/u.test(link);

/**
 * A page's text with links that hold in the site. What is linked in the repository becomes a page too, so that the site needs no
 * address of a repository; a link to a folder becomes its text, one to a picture stays.
 *
 * @param path of the page in the repository
 * @param kindOf "file" or "folder" for a path in the repository
 * @returns the text, and the files that it links to
 */
export function rewriteLinks(path, text, kindOf) {
  const links = [];
  const rewritten = outsideLinkText(text, (label, link) => {
    if (isOutside(link) || link.startsWith("#")) return `[${label}](${link})`;
    const [file, anchor] = link.split("#");
    const target = posix.join(posix.dirname(path), file);
    if (/\.(png|svg)$/u.test(target)) return `[${label}](${link})`;
    if (kindOf(target) === "folder") return label;
    links.push(target);
    const from = posix.dirname(pageOf(path));
    const to = posix.relative(from, pageOf(target));
    return `[${label}](${to.startsWith(".") ? to : `./${to}`}${anchor === undefined ? "" : `#${anchor}`})`;
  });
  return { text: rewritten, links };
}

/** Code spans in a link's label stay in it, so links are found where no code begins, and their labels may hold code. */
function outsideLinkText(text, change) {
  return text
    .split(/(^ *```[^]*?^ *```)/mu)
    .map((part, at) =>
      at % 2 === 1
        ? part
        : part.replaceAll(
            /(`[^`\n]+`)|\[((?:`[^`]*`|[^\][`])*)\]\(([^)\s]+)\)/gu,
            (all, code, label, link) => (code === undefined ? change(label, link) : all),
          ),
    )
    .join("");
}

/** A page's first heading, without code marks. */
export const titleOf = (text) => /^# (.+)$/mu.exec(text)?.[1].replaceAll("`", "") ?? "";

/** The first paragraph after the first heading, as one line without links. */
export function summaryOf(text) {
  const paragraphs = text
    .replace(/^---\n[^]*?\n---\n/u, "")
    .replaceAll(/^```[^]*?^```$/gmu, "")
    .split(/\n{2,}/u);
  const first = paragraphs.find((each) => /^[\p{L}`_*[]/u.test(each.trim())) ?? "";
  const plain = first
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/gu, "$1")
    .replaceAll(/\s+/gu, " ")
    .trim();
  return /^.*?[.:](?= [\p{Lu}`]|$)/u.exec(plain)?.[0] ?? plain;
}

/**
 * The sections of docs/index.md: its headings, each with the pages that it is the first to link to. A folder's README brings the
 * rest of its folder.
 *
 * @param readme of docs/index.md
 * @param pages all paths below docs/
 */
export function sectionsOf(index, pages) {
  const seen = new Set(["docs/index.md"]);
  const take = (path) => {
    if (seen.has(path) || !pages.includes(path)) return [];
    seen.add(path);
    const folder = posix.dirname(path);
    const inside = path.endsWith("/README.md")
      ? pages.filter((each) => posix.dirname(each) === folder && !seen.has(each)).sort()
      : [];
    for (const each of inside) seen.add(each);
    return [{ path, inside }];
  };
  const [, ...parts] = index.split(/^## /mu);
  const sections = parts.map((part) => ({
    title: part.split("\n", 1)[0],
    pages: [...part.matchAll(/\]\(([^)\s#]+\.md)[^)]*\)/gu)].flatMap(([, link]) =>
      take(posix.join("docs", link)),
    ),
  }));
  const left = pages.filter((path) => !seen.has(path));
  return left.length === 0
    ? sections
    : [...sections, { title: "More", pages: left.map((path) => ({ path, inside: [] })) }];
}

/** `{{` outside of code would be read as Vue's, and `<` as the beginning of an element. */
export const escapeVue = (text) =>
  outsideCode(text, (part) =>
    part
      .replaceAll("{{", "&#123;&#123;")
      .replaceAll(/<(?=[\p{L}/])(?!\/?(?:br|details|summary|sub|sup)\b)/gu, "&lt;"),
  );
