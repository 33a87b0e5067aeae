import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { CommandUnknownOpts } from "@commander-js/extra-typings";
import { expect, it } from "vitest";
import { DOUBT_RULES } from "@astra-rl/records";
import { COMMANDS } from "../../src/main.js";
import { completionCommand } from "../../src/commands/completion.js";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));

const read = (path: string) => readFileSync(join(ROOT, path), "utf8");

/** The paths of all pages, relative to the repository. */
const PAGES = [
  "README.md",
  "CHANGELOG.md",
  ...readdirSync(join(ROOT, "packages")).map((name) => `packages/${name}/README.md`),
  ...(readdirSync(join(ROOT, "docs"), { recursive: true }) as string[]).map((name) => `docs/${name}`),
].filter((path) => path.endsWith(".md") && existsSync(join(ROOT, path)));

/** A page without what is not prose: fenced blocks and code spans hold brackets that are no links. */
const prose = (text: string) => text.replace(/^( *)```[^]*?^\1```/gm, "").replace(/`[^`\n]*`/g, "`");

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(text: string): Set<string> {
  const headings = text.replace(/^```[^]*?^```/gm, "").match(/^#{1,6} .*$/gm) ?? [];
  const seen = new Map<string, number>();
  return new Set(
    headings.map((heading) => {
      const plain = heading.replace(/^#+ /, "").replace(/\[([^\]]*)\]\([^)]*\)/g, "$1");
      const slug = plain
        .trim()
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\p{M}_ -]/gu, "")
        .replaceAll(" ", "-");
      const count = seen.get(slug) ?? 0;
      seen.set(slug, count + 1);
      return count === 0 ? slug : `${slug}-${count}`;
    }),
  );
}

/** The links of a page that lead nowhere. */
function brokenLinks(page: string): string[] {
  const links = [...prose(read(page)).matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1]!);
  return links.filter((link) => {
    if (/^[a-z]+:/.test(link)) return false;
    const [path = "", anchor] = link.split("#");
    const target = path === "" ? page : relative(ROOT, resolve(ROOT, dirname(page), path));
    if (!existsSync(join(ROOT, target))) return true;
    if (anchor === undefined || statSync(join(ROOT, target)).isDirectory()) return false;
    return !anchorsOf(read(target)).has(anchor);
  });
}

it.each(PAGES)("%s links only to files and headings that exist", (page) => {
  expect(brokenLinks(page)).toEqual([]);
});

it("docs/index.md links to every page, directly or through another page", () => {
  const reached = new Set(["docs/index.md"]);
  for (const page of reached) {
    for (const [, link] of prose(read(page)).matchAll(/\]\(([^)\s#]+\.md)[^)]*\)/g)) {
      const target = relative(ROOT, resolve(ROOT, dirname(page), link!));
      if (existsSync(join(ROOT, target))) reached.add(target);
    }
  }
  expect(PAGES.filter((page) => page.startsWith("docs/") && !reached.has(page))).toEqual([]);
});

/** The texts in backticks in the first cell of each row of a page's tables. */
const firstCells = (page: string) =>
  new Map(
    read(page)
      .split("\n")
      .flatMap((line) => {
        const name = /^\| *`([^`]+)`/.exec(line)?.[1];
        return name === undefined ? [] : [[name, line] as const];
      }),
  );

it("docs/commands.md has every command once, and only existing options", async () => {
  const streams = { stdout: process.stdout, stderr: process.stderr, stdin: process.stdin };
  const commands: CommandUnknownOpts[] = [];
  for (const [name, load] of Object.entries(COMMANDS)) {
    const command = (await load())(streams as never);
    expect(command.name()).toBe(name);
    commands.push(command);
  }
  commands.push(completionCommand(streams as never, () => commands) as CommandUnknownOpts);
  const rows = firstCells("docs/commands.md");
  expect([...rows.keys()].sort()).toEqual(commands.map((command) => command.name()).sort());
  for (const command of commands) {
    const known = command.options.map(({ long }) => long);
    const named = [...rows.get(command.name())!.matchAll(/`(--[a-z-]+)/g)].map((match) => match[1]);
    expect(named.filter((name) => !known.includes(name as string))).toEqual([]);
  }
});

it("docs/troubleshooting.md explains every doubt", () => {
  const rows = firstCells("docs/troubleshooting.md");
  expect(Object.keys(DOUBT_RULES).filter((rule) => !rows.has(rule))).toEqual([]);
});
