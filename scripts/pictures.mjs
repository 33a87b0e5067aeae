#!/usr/bin/env node
/**
 * Takes the pictures of README.md: the report of a demo run, and its table as a terminal shows it.
 *
 *   npm run demo -- --run-dir runs/pictures && node scripts/pictures.mjs runs/pictures
 *
 * Needs a Chromium: chromium-headless-shell on the path, or what ASTRA_TEST_BROWSER names.
 */
import { mkdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { onPath } from "../packages/torch/scripts/setup/command.mjs";

const [run] = process.argv.slice(2);
if (run === undefined) throw new Error("give the folder of a demo run");
const folder = join(dirname(dirname(fileURLToPath(import.meta.url))), "docs", "images");
mkdirSync(folder, { recursive: true });

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const terminal = (text) => `<!doctype html><meta charset="utf-8"><style>
body { margin: 0; width: max-content; background: #14171b; color: #e6e9ed; }
pre { margin: 0; padding: 16px 20px; font: 13px/1.45 "DejaVu Sans Mono", monospace; }
b { color: #5fd39a; font-weight: normal; }
</style><pre><b>$ npm run demo</b>\n${escaped(text)}</pre>`;

const browser = await chromium.launch({
  executablePath: process.env.ASTRA_TEST_BROWSER ?? onPath("chromium-headless-shell") ?? undefined,
  args: ["--no-sandbox"],
});
try {
  const page = await browser.newPage({ viewport: { width: 1200, height: 1000 }, colorScheme: "light" });
  await page.goto(pathToFileURL(resolve(run, "report.html")).href);
  await page.locator("figure.chart canvas").first().waitFor();
  await page.screenshot({ path: join(folder, "report.png") });
  await page.setContent(terminal(readFileSync(join(run, "report.txt"), "utf8").trimEnd()));
  await page.locator("pre").screenshot({ path: join(folder, "terminal.png") });
} finally {
  await browser.close();
}
