import { readFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vitepress";
import { slugify } from "../pages.mjs";
import { BASE, PAGES_FOLDER, ROOT, SITE_FOLDER } from "../places.mjs";

export default defineConfig({
  title: "ASTRA-RL",
  description: "Trains testers that find likely prompts which make a language model or an agent misbehave",
  base: BASE,
  srcDir: PAGES_FOLDER,
  outDir: SITE_FOLDER,
  cacheDir: join(ROOT, ".cache", "vitepress"),
  // Addresses of an example's own server are no pages.
  ignoreDeadLinks: "localhostLinks",
  // Braces after code are text here, not attributes of an element.
  markdown: { anchor: { slugify }, attrs: { disable: true } },
  vite: { build: { chunkSizeWarningLimit: 2000 } },
  themeConfig: {
    outline: [2, 3],
    search: { provider: "local" },
    sidebar: JSON.parse(readFileSync(join(PAGES_FOLDER, "sidebar.json"), "utf8")),
    nav: [
      { text: "Overview", link: "/overview" },
      { text: "Gallery", link: "/gallery" },
      { text: "Which tool?", link: "/other-tools" },
      { text: "API", link: "/reference/index.html", target: "_self" },
      { text: "Changelog", link: "/changelog" },
    ],
    footer: { message: "MIT licence" },
  },
});
