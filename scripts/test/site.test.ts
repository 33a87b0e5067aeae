import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { linksOf } from "../../site/check.mjs";
import { escapeVue, pageOf, rewriteLinks, sectionsOf, slugify, summaryOf } from "../../site/pages.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const kindOf = (path: string) => (/\.\w+$/u.test(path) ? "file" : "folder");
const rewritten = (path: string, text: string) => rewriteLinks(path, text, kindOf).text;

describe("pages of the site", () => {
  it("keep links between pages, and take what is linked in the repository into the site", () => {
    const links = "[a](goals.md#goals) [`b`](../index.md) [c](../../packages/lm/README.md) [d](../../x.ts)";
    expect(rewriteLinks("docs/guides/agents.md", links, kindOf)).toEqual({
      text:
        "[a](./goals.md#goals) [`b`](../overview.md) [c](../repository/packages/lm/index.md) " +
        "[d](../repository/x.ts.md)",
      links: ["docs/guides/goals.md", "docs/index.md", "packages/lm/README.md", "x.ts"],
    });
    expect(rewritten("docs/index.md", "[a](algorithms/README.md) [b](../CHANGELOG.md)")).toBe(
      "[a](./algorithms/index.md) [b](./changelog.md)",
    );
  });

  it("keep addresses, anchors, pictures and code, and make a folder's link its text", () => {
    const text = "[a](https://b.c/d.md) [e](#f) ![g](images/h.png) `[i](j.md)` [guides](guides)\n";
    const fence = "```sh\n[k](l.md)\n```\n";
    expect(rewritten("docs/parity.md", text + fence)).toBe(
      text.replace("[guides](guides)", "guides") + fence,
    );
  });

  it("show what Vue would interpret", () => {
    expect(escapeVue("{{a}} <goal> `{{b}}` a < b<br>")).toBe("&#123;&#123;a}} &lt;goal> `{{b}}` a < b<br>");
  });

  it("have the anchors of GitHub", () => {
    expect(slugify(" What's new – and `old`? ")).toBe("whats-new--and-old");
  });

  it("are all in a section of docs/index.md, and at one address each", () => {
    const pages = (readdirSync(`${root}/docs`, { recursive: true }) as string[])
      .map((path) => `docs/${path}`)
      .filter((path) => path.endsWith(".md"));
    const sections = sectionsOf(readFileSync(`${root}/docs/index.md`, "utf8"), pages);
    const titles = sections.map(({ title }: { title: string }) => title);
    expect(titles).toContain("How we know");
    expect(titles).not.toContain("More");
    expect(new Set(pages.map(pageOf)).size).toBe(pages.length);
  });

  it("are summarized by their first sentence", () => {
    expect(summaryOf("# T\n\n```sh\nA. B\n```\n\nOne [two](x.md), i.e. 1.5:\nthree. Four.\n")).toBe(
      "One two, i.e. 1.5: three.",
    );
  });
});

describe("the check of the built site", () => {
  const site: Record<string, string> = {
    "a.html": `<a href="/s/b/c.html#d">1</a> <a href="b/c.html">2</a> <a href="#e">3</a> <a id="e" href="https://f.g">4</a>`,
    "b/c.html": `<h2 id="d">d</h2> <a href="../a.html#no">5</a> <a href="/s/no.html">6</a> <a href="/s/">7</a>`,
    "index.html": "",
  };
  const htmlOf = (path: string) => site[path] ?? null;

  it("finds links to files and headings that do not exist", () => {
    expect(linksOf("a.html", htmlOf, "/s/")).toEqual({ dead: [], count: 3 });
    expect(linksOf("b/c.html", htmlOf, "/s/")).toEqual({ dead: ["../a.html#no", "/s/no.html"], count: 3 });
  });
});
