import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { view, type RunningView } from "@astra-rl/report/view";
import { executablePath, launch, open, violationsOf } from "./browser.js";
import { HOSTILE_TEXTS } from "./hostile-texts.js";

const PROGRAM = fileURLToPath(new URL("../../astra-rl/bin/astra-rl.js", import.meta.url));
const CONFIGURATION = fileURLToPath(new URL("../../assembly/world/demo.yaml", import.meta.url));

const folder = mkdtempSync(join(tmpdir(), "astra-rl-view-"));
let browser: Browser;
let running: RunningView;

/** A run folder with hostile texts wherever a model's may occur. */
function hostileRun(id: string, seed: number): void {
  const path = join(folder, id);
  mkdirSync(path, { recursive: true });
  writeFileSync(
    join(path, "config.resolved.yaml"),
    JSON.stringify({
      seed,
      models: { tester: HOSTILE_TEXTS[0], target: "t" },
      training: { trainingSteps: 40 },
    }),
  );
  const steps = Array.from({ length: 40 }, (_, at) => at + 1);
  const lines = (record: (step: number) => object) =>
    steps.map((step) => `${JSON.stringify(record(step))}\n`).join("");
  writeFileSync(
    join(path, "metrics.jsonl"),
    lines((step) => ({
      step,
      loss: 1 / step,
      "reward/mean": (seed * step) / 80,
      "success/harmless_probe_rate": Math.min(1, (seed * step) / 80),
      "tokens/tester/read": 100 * seed,
      "time/rollout_s": 2,
      version: 1,
    })),
  );
  const turn = (at: number) => ({
    context: "c",
    probe: HOSTILE_TEXTS[at % HOSTILE_TEXTS.length],
    response: HOSTILE_TEXTS[(at + 1) % HOSTILE_TEXTS.length],
    reward: at / 100,
    children: [],
    scores: { probe: 0.1, response: at % 2 === 0 ? 0.9 : 0.2 },
  });
  writeFileSync(
    join(path, "graphs.jsonl"),
    HOSTILE_TEXTS.map(
      (context, at) =>
        `${JSON.stringify({ context, children: [{ ...turn(at), children: [turn(at + 1), turn(at + 2)] }, turn(at + 3)], seed: 1, episode: at, step: 1 + Math.floor(at / 2), version: 1 })}\n`,
    ).join(""),
  );
}

// The browser types that the tests use; tests do not include these.
interface TableRow {
  cells: ArrayLike<{ textContent: string | null }>;
}
interface Canvas {
  width: number;
  height: number;
  getContext: (kind: "2d") => {
    getImageData: (x: number, y: number, width: number, height: number) => { data: Uint8ClampedArray };
  };
}

const dataOf = (page: Page, chart: string) =>
  page.locator("figure.chart", { has: page.getByText(chart, { exact: true }) });

/** The numbers of a chart, by column. */
async function numbersOf(page: Page, chart: string): Promise<string[][]> {
  const figure = dataOf(page, chart);
  const details = figure.locator("details");
  // While a run trains, what is new above may move the summary between the press and the release of the button.
  const open = async () => {
    if ((await details.getAttribute("open")) === null) await details.locator("summary").click();
    return figure.locator("tbody tr").count();
  };
  await expect.poll(open, { timeout: 30_000 }).toBeGreaterThan(0);
  const rows = await figure
    .locator("tbody tr")
    .evaluateAll((found) =>
      (found as unknown as TableRow[]).map((row) =>
        Array.from(row.cells, ({ textContent }) => textContent ?? ""),
      ),
    );
  return rows;
}

describe.skipIf(executablePath === undefined)("astra-rl view in a browser", () => {
  beforeAll(async () => {
    browser = await launch();
    hostileRun("one", 1);
    hostileRun("two", 2);
    running = await view(folder, { port: 0 });
  });
  afterAll(async () => {
    await browser?.close();
    await running?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const at = (place: string) => `${running.url}/#${place}`;

  test("two runs are overlaid by step, time and tokens, in the colors of their names", async () => {
    const { page, complaints } = await open(browser, at("run=one&run=two"));
    await page.locator("figure.chart").first().waitFor();
    const rows = await numbersOf(page, "Success with harmless probes only");
    // Means over five steps; at step 20 of seeds 1 and 2: 20/80 and 40/80.
    expect(rows[19]).toEqual(["20", "25.0\u00A0%", "50.0\u00A0%"]);
    expect(rows).toHaveLength(40);
    await page.getByLabel("Across").selectOption("tokens");
    // Seed 1 reads 100 tokens a step, seed 2 200: by 2,000 tokens they are at steps 20 and 10.
    await expect
      .poll(async () =>
        (await numbersOf(page, "Success with harmless probes only")).find(([x]) => x === "2k"),
      )
      .toEqual(["2k", "25.0\u00A0%", "25.0\u00A0%"]);
    await page.getByLabel("Across").selectOption("time");
    await expect
      .poll(async () => (await numbersOf(page, "Success with harmless probes only"))[19]?.[0])
      .toBe("0:40 min");
    // Pixels: both colors are drawn, blue mostly to the lower right of orange.
    const colors = await dataOf(page, "Success with harmless probes only")
      .locator("canvas")
      .evaluate((canvas) => {
        const drawn = canvas as unknown as Canvas;
        const { data } = drawn.getContext("2d").getImageData(0, 0, drawn.width, drawn.height);
        const found: Record<string, { n: number; y: number }> = {
          blue: { n: 0, y: 0 },
          orange: { n: 0, y: 0 },
        };
        for (let index = 0; index < data.length; index += 4) {
          const [red, green, blue] = [data[index]!, data[index + 1]!, data[index + 2]!];
          // --blue and --orange of the light scheme.
          const name =
            red === 31 && green === 111 && blue === 235
              ? "blue"
              : red === 179 && green === 89 && blue === 0
                ? "orange"
                : null;
          if (name === null) continue;
          found[name]!.n += 1;
          found[name]!.y += Math.floor(index / 4 / drawn.width);
        }
        return {
          blue: found["blue"]!.n,
          orange: found["orange"]!.n,
          higher: found["orange"]!.y / found["orange"]!.n < found["blue"]!.y / found["blue"]!.n,
        };
      });
    expect(colors.blue).toBeGreaterThan(50);
    expect(colors.orange).toBeGreaterThan(50);
    expect(colors.higher).toBe(true);
    expect(await page.getByRole("region", { name: "Options that differ" }).innerText()).toContain("seed");
    expect(complaints).toEqual([]);
    await page.close();
  });

  test("the search opens the turn it found; a tree works by mouse and by keyboard", async () => {
    const { page, complaints } = await open(browser, at("run=one"));
    await page.getByLabel("Text in any prompt, probe or response").fill("hyperlink(");
    const hits = page.locator(".hits li");
    await expect.poll(() => hits.count()).toBeGreaterThan(2);
    expect(await page.locator(".hits mark").first().textContent()).toBe("HYPERLINK(");
    await hits.nth(2).getByRole("button").click();
    const current = page.locator('[role="treeitem"][aria-selected="true"]');
    await expect.poll(() => current.innerText()).toContain("HYPERLINK(");
    expect(new URL(page.url()).hash).toMatch(/g=\d+/);
    // By mouse: a dot of the picture selects its turn, and its siblings are side by side.
    await page.locator(".dot").nth(1).click();
    await expect.poll(() => current.getAttribute("data-path")).toBe("0.0");
    expect(await page.locator(".sibling-columns .talk").count()).toBe(2);
    // By keyboard.
    await current.focus();
    await page.keyboard.press("ArrowDown");
    await expect.poll(() => current.getAttribute("data-path")).toBe("0.1");
    await page.keyboard.press("Home");
    await expect.poll(() => current.getAttribute("data-path")).toBe("0");
    // The path with the highest total reward is marked.
    expect(await page.locator(".tree .best-mark").count()).toBe(2);
    expect(complaints).toEqual([]);
    await page.close();
  });

  test("hostile texts do nothing, and no request goes to another machine", async () => {
    const { page, complaints } = await open(browser, at("run=one"));
    await page.getByLabel("Show harmful texts").check();
    await page.getByRole("treeitem").first().waitFor();
    for (let left = HOSTILE_TEXTS.length; left > 0; left--) {
      const previous = page.getByRole("button", { name: "Previous" });
      if (await previous.isDisabled()) break;
      await previous.click();
      await page.getByRole("treeitem").first().waitFor();
    }
    await page.getByLabel("Text in any prompt, probe or response").fill("e");
    await page.locator(".hits li").first().waitFor();
    expect(await page.evaluate("window.pwned ?? ({}).pwned")).toBeUndefined();
    const foreign =
      "iframe, object, embed, link, img, video, audio, form[action], base, template, a:not(.skip)";
    expect(await page.locator(foreign).count()).toBe(0);
    expect(complaints).toEqual([]);
    await page.close();
  });

  test("axe finds nothing wrong, and nothing is wider than the window, light and dark, wide and narrow", async () => {
    for (const [width, dark] of [
      [1440, false],
      [390, true],
    ] as const) {
      const { page } = await open(browser, at("run=one&run=two"), { width, dark });
      await page.getByLabel("Text in any prompt, probe or response").fill("e");
      await page.locator(".hits li").first().waitFor();
      expect(await violationsOf(page)).toEqual([]);
      expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(width);
      await page.close();
    }
  });

  test("a run that trains appears by itself, and its curves grow", async () => {
    const { page, complaints } = await open(browser, at("run=live"));
    await expect.poll(() => page.getByRole("alert").innerText()).toContain("there is no run live here");
    await page.goto(at(""));
    const path = join(folder, "live");
    const args = [
      PROGRAM,
      "train",
      CONFIGURATION,
      "--run-dir",
      path,
      "--set",
      "training.trainingSteps=24",
      "--set",
      "training.evaluateEvery=8",
      "--quiet",
    ];
    const child: ChildProcess = spawn(process.execPath, args, { stdio: "inherit" });
    const ended = new Promise<number | null>((done) => child.on("close", done));
    try {
      const choice = page.getByRole("checkbox", { name: "live" });
      await choice.waitFor({ timeout: 60_000 });
      await page.goto(at("run=live"));
      await expect.poll(() => page.locator(".state.training").count(), { timeout: 30_000 }).toBe(1);
      await page.locator("figure.chart").first().waitFor({ timeout: 30_000 });
      const steps = async () => (await numbersOf(page, "Loss")).length;
      const before = await steps();
      await expect.poll(steps, { timeout: 60_000 }).toBeGreaterThan(before + 3);
      // The first evaluation shows its conversations, without a reload.
      await page.locator(".conversations .talk, .best .talk").first().waitFor({ timeout: 60_000 });
      expect(await ended).toBe(0);
      await expect
        .poll(() => page.locator("tr", { has: page.getByRole("checkbox", { name: "live" }) }).innerText(), {
          timeout: 10_000,
        })
        .toContain("24 of 24");
      await expect.poll(steps).toBe(24);
      // The page shows the contents of the file.
      const lines = readFileSync(join(path, "metrics.jsonl"), "utf8").trim().split("\n");
      const last = JSON.parse(lines.at(-1)!) as { "evaluation/probe_nll": number };
      const rows = await numbersOf(page, "Probe NLL, nats a token");
      expect(rows).toHaveLength(24);
      expect(rows.at(-1)!.at(-1)).toBe(last["evaluation/probe_nll"].toFixed(3));
      expect(complaints.filter((text) => !text.includes("404"))).toEqual([]);
    } finally {
      child.kill("SIGKILL");
      await page.close();
    }
    expect(existsSync(join(path, "checkpoints", "last"))).toBe(true);
  }, 180_000);
});
