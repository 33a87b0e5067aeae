import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { htmlReport } from "@astra-rl/report";
import { shown } from "../src/shown.js";
import { executablePath, launch, open, violationsOf } from "./browser.js";
import { HOSTILE_TEXTS } from "./hostile-texts.js";
import { sampleReport } from "./sample-report.js";

const folder = mkdtempSync(join(tmpdir(), "astra-rl-page-"));
let browser: Browser;
let file: string;

describe.skipIf(executablePath === undefined)("the page of a report, opened from disk", () => {
  beforeAll(async () => {
    browser = await launch();
    const path = join(folder, "report.html");
    writeFileSync(path, htmlReport(sampleReport(HOSTILE_TEXTS)));
    file = pathToFileURL(path).href;
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  test("the sample has more than forty hostile texts, and the page without records is under a megabyte", () => {
    expect(new Set(HOSTILE_TEXTS).size).toBeGreaterThanOrEqual(40);
    expect(
      htmlReport({
        runs: [],
        evaluations: [],
        groups: [],
        seeds: [],
        differences: [],
        comparison: null,
        version: 3,
      }).length,
    ).toBeLessThan(1_000_000);
  });

  test("hostile texts are shown unchanged and do nothing", async () => {
    const { page, complaints } = await open(browser, file);
    await page.getByRole("combobox", { name: "With" }).selectOption("all");
    await page.getByLabel("Group identical probes").uncheck();
    await page.getByLabel("Show harmful texts").check();
    const more = page.getByRole("button", { name: /^Show \d+ more$/ });
    while ((await more.count()) > 0) await more.click();
    const said = await page.locator(".talk .said").allTextContents();
    for (const text of HOSTILE_TEXTS) expect(said).toContain(shown(text));
    // Also each tree, with its prompt and its turns.
    for (let left = HOSTILE_TEXTS.length; left > 0; left--) {
      const previous = page.getByRole("button", { name: "Previous" });
      if (await previous.isDisabled()) break;
      await previous.click();
    }
    for (const summary of await page.locator("summary").all()) await summary.click();
    await page.waitForTimeout(200);
    expect(await page.evaluate("window.pwned ?? ({}).pwned")).toBeUndefined();
    expect(await page.evaluate("[...document.scripts].map(({ type }) => type)")).toEqual([
      "module",
      "application/json",
    ]);
    const foreign =
      "iframe, object, embed, link, img, video, audio, form[action], base, template, a:not(.skip)";
    expect(await page.locator(foreign).count()).toBe(0);
    expect(complaints).toEqual([]);
    await page.close();
  });

  test("an injected script does not run: the policy allows only the built one", async () => {
    const path = join(folder, "inserted.html");
    writeFileSync(
      path,
      readFileSync(new URL(file), "utf8").replace("</body>", "<script>window.pwned = 1</script></body>"),
    );
    const { page, complaints } = await open(browser, pathToFileURL(path).href);
    expect(await page.evaluate("window.pwned")).toBeUndefined();
    expect(complaints.join("\n")).toContain("Content Security Policy");
    await page.close();
  });

  test("charts are drawn in both color schemes", async () => {
    const pictures: string[] = [];
    for (const dark of [false, true]) {
      const { page, complaints } = await open(browser, file, { dark });
      const charts = page.locator("figure.chart");
      expect(await charts.locator("figcaption .term").allTextContents()).toEqual([
        "Success with harmless probes only",
        "Success",
        "Reward of a turn",
        "Loss",
        "Goals of a step",
        "Success by category of goals",
      ]);
      // Number of different colors on a canvas: an empty one has one.
      const colors =
        await page.evaluate(`[...document.querySelectorAll("figure.chart canvas")].map((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size;
      })`);
      for (const count of colors as number[]) expect(count).toBeGreaterThan(20);
      pictures.push((await charts.nth(1).screenshot()).toString("base64"));
      expect(complaints).toEqual([]);
      await page.close();
    }
    expect(pictures[0]).not.toBe(pictures[1]);
  });

  test("harmful texts are blurred until shown, for one conversation or all", async () => {
    const { page } = await open(browser, file);
    const first = page.locator(".conversations .talk").first();
    expect(await first.locator(".veiled").count()).toBe(1);
    expect(await page.evaluate("getComputedStyle(document.querySelector('.talk .veiled')).filter")).toMatch(
      /blur/,
    );
    expect(await first.locator(".veiled").getAttribute("aria-hidden")).toBe("true");
    await first.getByRole("button", { name: "Show 1 harmful text" }).press("Enter");
    expect(await first.locator(".veiled").count()).toBe(0);
    expect(await page.locator(".talk .veiled").count()).toBeGreaterThan(0);
    await page.getByLabel("Show harmful texts").check();
    expect(await page.locator(".talk .veiled").count()).toBe(0);
    await page.close();
  });

  test("the search works by keyboard, marks matches, and shows their number", async () => {
    const { page } = await open(browser, file);
    const search = page.getByRole("searchbox", { name: "Search" });
    await search.focus();
    await page.keyboard.type("hyperlink(");
    await expect.poll(() => page.getByRole("status").textContent()).toBe("3 conversations.");
    expect(await page.locator("mark").first().textContent()).toBe("HYPERLINK(");
    await page.keyboard.press("Control+A");
    await page.keyboard.type("nobody says this");
    await expect.poll(() => page.getByRole("status").textContent()).toBe("No conversation matches.");
    await page.close();
  });

  test("the tree works with the keyboard alone", async () => {
    const { page, complaints } = await open(browser, file);
    const items = page.getByRole("treeitem");
    expect(await items.count()).toBe(14);
    const focused = () => page.evaluate("document.activeElement.dataset.path");
    await items.first().focus();
    for (const [key, path, count] of [
      ["ArrowDown", "0.0", 14],
      ["ArrowUp", "0", 14],
      ["End", "1.1.1", 14],
      ["ArrowLeft", "1.1", 14],
      ["ArrowLeft", "1.1", 12],
      ["ArrowRight", "1.1", 14],
      ["ArrowRight", "1.1.0", 14],
      ["Home", "0", 14],
      ["ArrowLeft", "0", 8],
    ] as const) {
      await page.keyboard.press(key);
      await expect.poll(async () => [key, await focused(), await items.count()]).toEqual([key, path, count]);
    }
    // One tab stop, at any position in the tree.
    expect(await page.locator('[role="treeitem"][tabindex="0"]').count()).toBe(1);
    expect(await items.first().getAttribute("aria-expanded")).toBe("false");
    const veiled = page.locator('[role="treeitem"] .veiled');
    const before = await veiled.count();
    await page.keyboard.press("Home");
    for (let at = 0; at < 3 && (await veiled.count()) === before; at++) {
      await page.keyboard.press("Enter");
      await page.keyboard.press("ArrowDown");
    }
    expect(await veiled.count()).toBe(before - 1);
    await page.getByRole("button", { name: "Previous" }).press("Enter");
    expect(await items.count()).toBe(14);
    expect(complaints).toEqual([]);
    await page.close();
  });

  test("nothing is wider than the window from 390 to 1440 pixels", async () => {
    for (const width of [390, 768, 1440]) {
      const { page } = await open(browser, file, { width });
      await page.getByLabel("Show harmful texts").check();
      expect([width, await page.evaluate("document.documentElement.scrollWidth")]).toEqual([width, width]);
      await page.close();
    }
  });

  test("bars follow the figures and share their zero for any labels; the scorers, and the roles of a prompt, are shown", async () => {
    const report = sampleReport(["One.", "Two.", "Three."]);
    report.evaluations[0]!.label = "a label of an evaluation that is longer than the others";
    report.evaluations[1]!.label = "b";
    report.evaluations[1]!.run = report.runs[0]!.label;
    report.runs[0]!.configuration = {
      models: {
        tester: { path: "/models/small-tester", system: "x" },
        target: { type: "openai", model: "some-chat", baseUrl: "http://127.0.0.1" },
      },
      scorer: { type: "judge", model: "guard-1" },
    };
    const messages = [
      ["system", "Be kind."],
      ["prompt", "Hello."],
      ["target", "Hi."],
      ["prompt", "How are you?"],
    ] as const;
    report.evaluations[1]!.details[0]!.per_turn[0]!.prompt_messages = messages.map(([from, text]) => [
      from,
      text,
    ]);
    const path = join(folder, "named.html");
    writeFileSync(path, htmlReport(report));
    for (const width of [1280, 390]) {
      const { page, complaints } = await open(browser, pathToFileURL(path).href, { width });
      const lefts = await page.evaluate(
        "[...document.querySelectorAll('.interval-track')].map((each) => each.getBoundingClientRect().left)",
      );
      expect(new Set(lefts as number[]).size).toBe(1);
      expect(await page.locator("h1").textContent()).toBe("small-tester trained against some-chat");
      expect(await page.locator(".measured").textContent()).toBe(
        "Target some-chatJudged by judge guard-1Harmful from 0.5",
      );
      const talk = page.locator(".conversations .talk").filter({ hasText: "Be kind." }).first();
      await page.evaluate("document.querySelector('.best').style.minHeight = '60rem'");
      const figure = (await page.locator(".figures strong").last().boundingBox())!;
      const interval = (await page.locator(".interval-track").first().boundingBox())!;
      expect(interval.y - (figure.y + figure.height)).toBeLessThan(200);
      expect((await talk.locator(".voice").allTextContents()).slice(0, 5)).toEqual([
        ...messages.map(([from]) => from),
        "tester",
      ]);
      expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(width);
      expect(complaints).toEqual([]);
      if (process.env["PICTURE"] !== undefined)
        await page.screenshot({ path: `${process.env["PICTURE"]}-${width}.png` });
      await page.close();
    }
  });

  test("the cost of a search is shown next to the scorer", async () => {
    const report = sampleReport(["One.", "Two.", "Three."]);
    const identity = { model: "/models/some-chat", files: {} };
    report.evaluations[1]!.measured = {
      tester: { ...identity, model: "search" },
      target: identity,
      reward: {},
      scorer: { type: "keyword" },
      search: {
        queries: 3600,
        budget: 3600,
        n_failed: 0,
        rounds: [],
        sample_nll: null,
        max_nll: null,
        probes: [{ probe: "One.", biased_estimate: { n_tried: 4, n_successes: 1, rate: 0.25 }, nll: null }],
      },
      prompts: { source: "embedded", split: "test", sha256: "0".repeat(64), count: 4 },
      generation: { tester: {}, target: {} },
      formats: {},
      sampler: { type: "flat" },
      dtype: "float32",
      seed: 1,
      astra_rl: "0.1.0",
    };
    const path = join(folder, "searched.html");
    writeFileSync(path, htmlReport(report));
    const { page, complaints } = await open(browser, pathToFileURL(path).href);
    expect(await page.locator(".measured").textContent()).toBe(
      "Target some-chatJudged by keywordHarmful from 0.5Target answers used by the search 3,600",
    );
    expect(complaints).toEqual([]);
    await page.close();
  });

  test("several seeds have one headline, not that of the last seed", async () => {
    const report = sampleReport(["One.", "Two.", "Three."]);
    const [first] = report.runs;
    report.runs = [1, 2, 3].map((seed) => ({ ...first!, label: `seed-${seed}` }));
    report.evaluations[1]!.run = "seed-3";
    report.comparison = null;
    const figure = { mean: 0.31, interval: { lower: 0.2, upper: 0.42 }, n_seeds: 3 };
    report.seeds = [
      {
        label: "",
        runs: [0, 1, 2],
        evaluations: [1],
        n_without_verdict: 0,
        success_rate: figure,
        cluster_success_rate: { mean: 0.12, interval: null, n_seeds: 2 },
        harmless_probe_success_rate: figure,
        mean_probe_nll: { mean: 1.5, interval: null, n_seeds: 2 },
      },
    ];
    const path = join(folder, "seeds.html");
    writeFileSync(path, htmlReport(report));
    const { page, complaints } = await open(browser, pathToFileURL(path).href);
    const text = (await page.locator("#finding").textContent())!.replaceAll("\u00A0", " ");
    expect(text).toContain("Over 3 seeds, the target gave a harmful answer to harmless probes in 31.0 % of");
    expect(text).toContain("20.0 % to 42.0 %, 3 seeds");
    expect(text).toContain("no interval: 2 seeds are too few for one");
    expect(text).toMatch(/Success, each cluster of attacks once.*12\.0 %/u);
    expect(await page.locator("#finding .figures").textContent()).not.toContain("65.0");
    expect(complaints).toEqual([]);
    if (process.env["PICTURE"] !== undefined)
      await page.screenshot({ path: `${process.env["PICTURE"]}-seeds.png` });
    await page.close();
  });

  test("axe finds nothing wrong, light and dark", async () => {
    for (const dark of [false, true]) {
      const { page } = await open(browser, file, { dark });
      expect(await violationsOf(page)).toEqual([]);
      await page.close();
    }
  });
});
