import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { chromium, type Browser, type Page } from "playwright-core";

/** An available Chromium: named by ASTRA_TEST_BROWSER, or on the path. */
function findBrowser(): string | undefined {
  const names = ["chromium-headless-shell", "chromium", "google-chrome"];
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  const candidates = names.flatMap((name) => folders.map((folder) => join(folder, name)));
  return process.env["ASTRA_TEST_BROWSER"] ?? candidates.find((path) => existsSync(path));
}

export const executablePath = findBrowser();
if (executablePath === undefined) {
  console.warn("SKIPPED: pages in a browser: there is no Chromium (apt-get install chromium-headless-shell)");
}

export interface Opened {
  page: Page;
  /** Errors, warnings and requests other than that for the file. */
  complaints: string[];
}

export async function open(
  browser: Browser,
  url: string,
  { width = 1280, dark = false } = {},
): Promise<Opened> {
  const page = await browser.newPage({
    viewport: { width, height: 900 },
    colorScheme: dark ? "dark" : "light",
  });
  const complaints: string[] = [];
  page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(url.split("#")[0]!)) complaints.push(`request: ${request.url()}`);
  });
  await page.goto(url);
  await page.locator("h1").waitFor();
  return { page, complaints };
}

export const launch = (): Promise<Browser> =>
  chromium.launch({ executablePath: executablePath!, args: ["--no-sandbox"] });

/** axe's findings for the current page. */
export async function violationsOf(page: Page): Promise<string[]> {
  const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  return page.evaluate(
    `${axe}; axe.run(document).then(({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes[0].html))`,
  );
}
