/**
 * Builds the documentation site into .cache/site, from docs/, the reports of the gallery and the API reference.
 *
 *   npm run docs:site [-- --no-reference]
 *
 * VitePress has packages of its own, in site/node_modules, which are installed on the first build; after that nothing is
 * downloaded. SITE_BASE=/name/ builds a site that lies below a folder of its server.
 */
import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { checkSite } from "./check.mjs";
import { GALLERY, galleryPage, figuresOf } from "./gallery.mjs";
import { escapeVue, pageOf, rewriteLinks, sectionsOf, summaryOf, titleOf } from "./pages.mjs";
import { BASE, PAGES_FOLDER, ROOT, SITE_FOLDER } from "./places.mjs";

const site = join(ROOT, "site");
const say = (line) => process.stderr.write(`site: ${line}\n`);
const read = (path) => readFileSync(join(ROOT, path), "utf8");

function run(command, args, options = {}) {
  const { status, error } = spawnSync(command, args, { cwd: ROOT, stdio: "inherit", ...options });
  if (status === 0) return;
  throw new Error(`site: ${[command, ...args].join(" ")}: ${error?.message ?? `ended with ${status}`}`);
}

function write(folder, path, text) {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), text);
}

function install() {
  const installed = join(site, "node_modules/.package-lock.json");
  const lock = join(site, "package-lock.json");
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return;
  say("installing VitePress (npm ci in site/)");
  run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: site });
}

const DOCS = readdirSync(join(ROOT, "docs"), { recursive: true, encoding: "utf8" })
  .map((path) => `docs/${path}`)
  .filter((path) => path.endsWith(".md"))
  .sort();

const kindOf = (path) => {
  const at = join(ROOT, path);
  if (!existsSync(at)) throw new Error(`site: a page links to ${path}, which does not exist`);
  return statSync(at).isDirectory() ? "folder" : "file";
};

/** Writes each page of docs/, and whatever these link to. */
function writePages() {
  const pending = new Set([...DOCS, "CHANGELOG.md"]);
  for (const path of pending) {
    const source = read(path);
    if (!path.endsWith(".md")) {
      const language = /\.(\w+)$/u.exec(path)?.[1] ?? "";
      write(PAGES_FOLDER, pageOf(path), `# ${path}\n\n\`\`\`\`${language}\n${source}\n\`\`\`\`\n`);
      continue;
    }
    const { text, links } = rewriteLinks(path, source, kindOf);
    for (const link of links) pending.add(link);
    write(PAGES_FOLDER, pageOf(path), escapeVue(text));
  }
  cpSync(join(ROOT, "docs/images"), join(PAGES_FOLDER, "images"), { recursive: true });
}

/** The page of the gallery, and the reports that it shows. */
function writeGallery() {
  const found = GALLERY.filter(({ name }) => existsSync(galleryPage(name)));
  const missing = GALLERY.filter((each) => !found.includes(each)).map(({ name }) => name);
  if (missing.length > 0) {
    say(`the gallery lacks ${missing.join(", ")}: npm run docs:gallery makes them, in about ten minutes`);
  }
  for (const { name } of found) {
    mkdirSync(join(PAGES_FOLDER, "public/gallery"), { recursive: true });
    cpSync(galleryPage(name), join(PAGES_FOLDER, "public/gallery", `${name}.html`));
  }
  const cards = found.map((each) => {
    const figures = figuresOf(each);
    const figure = figures === null ? "" : `\n<p class="figure">${figures}</p>\n`;
    return `<a class="report" href="${BASE}gallery/${each.name}.html" target="_self">\n<h2>${each.title}</h2>\n${figure}<p>${each.text}</p>\n</a>`;
  });
  const shown =
    cards.length === 0
      ? "_This build has none: `npm run docs:gallery` makes them._"
      : `<div class="reports">\n${cards.join("\n")}\n</div>`;
  write(
    PAGES_FOLDER,
    "gallery.md",
    read("site/gallery.md").replace("<!-- reports -->", () => shown),
  );
  return found;
}

function sidebarOf(sections) {
  const entry = ({ path, inside }) => ({
    text: titleOf(read(path)),
    link: `/${pageOf(path).replace(/\.md$/u, "")}`,
    ...(inside.length === 0
      ? {}
      : { collapsed: true, items: inside.map((each) => entry({ path: each, inside: [] })) }),
  });
  return sections.map(({ title, pages }) => ({ text: title, items: pages.map(entry) }));
}

/** https://llmstxt.org: what there is to read, for programs. */
function llmsText(sections) {
  const entry = (path) => `- [${titleOf(read(path))}](${BASE}${pageOf(path)}): ${summaryOf(read(path))}`;
  return [
    "# ASTRA-RL for TypeScript",
    `> ${summaryOf(read("README.md"))}`,
    ...sections.map(({ title, pages }) =>
      [`## ${title}`, "", ...pages.flatMap(({ path, inside }) => [path, ...inside]).map(entry)].join("\n"),
    ),
    "",
  ].join("\n\n");
}

install();
for (const folder of [PAGES_FOLDER, SITE_FOLDER]) rmSync(folder, { recursive: true, force: true });
const sections = sectionsOf(read("docs/index.md"), DOCS);
writePages();
const gallery = writeGallery();
cpSync(join(site, "index.md"), join(PAGES_FOLDER, "index.md"));
write(PAGES_FOLDER, "sidebar.json", JSON.stringify(sidebarOf(sections)));
write(PAGES_FOLDER, "public/llms.txt", llmsText(sections));
run(process.execPath, [join(site, "node_modules/vitepress/bin/vitepress.js"), "build", site]);
// The pages as they are, for programs that read llms.txt.
for (const path of DOCS) cpSync(join(PAGES_FOLDER, pageOf(path)), join(SITE_FOLDER, pageOf(path)));
if (!process.argv.includes("--no-reference")) {
  say("writing the API reference (typedoc)");
  run(process.execPath, [
    join(ROOT, "node_modules/typedoc/bin/typedoc"),
    "--out",
    join(SITE_FOLDER, "reference"),
  ]);
}
const { pages, links, searches } = await checkSite();
say(
  `built ${pages} pages and ${gallery.length} reports into ${SITE_FOLDER}; ${links} links lead somewhere, and ${searches} searches find their page`,
);
