import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { summarize } from "@astra-rl/analysis";
import { stringifyEvaluation, stringifyMetrics, type EvaluationDetail } from "@astra-rl/records";
import { breaking } from "../../../base/test/support/breaking.js";
import { view, type RunningView } from "../../src/view/index.js";

const folder = mkdtempSync(join(tmpdir(), "astra-rl-view-"));
let running: RunningView;

const metrics = (step: number) =>
  `${stringifyMetrics({ step, loss: 1 / step, "reward/mean": step, "evaluation/success_rate": step / 10, "evaluation/cluster_success_rate": step / 40 })}\n`;
const graph = (context: string, step: number) =>
  `${JSON.stringify({ context, children: [], seed: 1, episode: 0, version: 1, step })}\n`;

function makeRun(id: string, seed: number, steps: number): void {
  const path = join(folder, id);
  mkdirSync(path, { recursive: true });
  writeFileSync(
    join(path, "config.resolved.yaml"),
    `seed: ${seed}\nmodels: { tester: a, target: { path: b } }\nalgorithm: { type: dpo }\ntraining: { trainingSteps: 3 }\n`,
  );
  writeFileSync(
    join(path, "metrics.jsonl"),
    Array.from({ length: steps }, (_, at) => metrics(at + 1)).join(""),
  );
  writeFileSync(join(path, "graphs.jsonl"), graph(`prompt of ${id}`, 1));
}

interface Answer {
  status: number;
  headers: NodeJS.Dict<string | string[]>;
  text: string;
}

function ask(path: string, headers: Record<string, string> = {}, method = "GET"): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request(`${running.url}${path}`, { method, headers }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => (text += part));
      response.on("end", () => resolve({ status: response.statusCode!, headers: response.headers, text }));
    });
    sent.on("error", reject).end();
  });
}
const json = async (path: string) => JSON.parse((await ask(path)).text) as never;

/** The events of a stream, until a condition holds. */
async function events(path: string, isEnough: (told: { event: string; data: unknown }[]) => boolean) {
  const stop = new AbortController();
  const response = await fetch(`${running.url}${path}`, { signal: stop.signal });
  const told: { event: string; data: unknown }[] = [];
  let text = "";
  for await (const part of response.body!.pipeThrough(new TextDecoderStream())) {
    text += part;
    const blocks = text.split("\n\n");
    text = blocks.pop()!;
    for (const block of blocks) {
      const [, event, data] = /^event: (.+)\ndata: (.*)$/u.exec(block)!;
      told.push({ event: event!, data: JSON.parse(data!) });
    }
    if (isEnough(told)) break;
  }
  stop.abort();
  return told;
}

describe("the server of astra-rl view", () => {
  beforeAll(async () => {
    makeRun("a/seed-1", 1, 3);
    makeRun("a/seed-2", 2, 2);
    makeRun("b", 1, 1);
    writeFileSync(join(folder, "other.json"), '{"name": "no evaluation"}');
    mkdirSync(join(folder, ".hidden"));
    cpSync(join(folder, "b"), join(folder, ".hidden", "c"), { recursive: true });
    running = await view(folder, { port: 0 });
  });
  afterAll(async () => {
    await running.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it("lists run folders with their models and progress", async () => {
    const { runs, evaluations } = (await json("/api/list")) as {
      runs: { id: string }[];
      evaluations: string[];
    };
    expect(runs.map(({ id }) => id).sort()).toEqual(["a/seed-1", "a/seed-2", "b"]);
    expect(runs.find(({ id }) => id === "a/seed-2")).toMatchObject({
      state: "stopped",
      steps: 2,
      planned: 3,
      tester: "a",
      target: "b",
      algorithm: "dpo",
      seed: 2,
      success: 0.2,
      clusters: 0.05,
    });
    expect(runs.find(({ id }) => id === "a/seed-1")).toMatchObject({ state: "finished", steps: 3 });
    expect(evaluations).toEqual([]);
  });

  it("returns a report of chosen runs, with their differences", async () => {
    const report = (await json("/api/report?run=a/seed-1&run=a/seed-2")) as {
      runs: { label: string; metrics: object[]; graphs: object[] }[];
      differences: object[];
    };
    expect(report.runs.map(({ label, metrics: lines }) => [label, lines.length])).toEqual([
      ["a/seed-1", 3],
      ["a/seed-2", 2],
    ]);
    expect(report.runs[0]!.graphs).toEqual([]);
    expect(report.differences).toEqual([{ key: "seed", values: ["1", "2"] }]);
  });

  it("returns single graphs, and searches those of several runs", async () => {
    expect(await json("/api/graphs?run=b")).toMatchObject({ from: 0, total: 1 });
    expect(await json("/api/graph?run=b&at=0")).toMatchObject({ context: "prompt of b", step: 1 });
    expect(await json("/api/search?run=a/seed-1&run=b&text=PROMPT")).toMatchObject({
      total: 2,
      hits: [{ run: "a/seed-1" }, { run: "b" }],
    });
  });

  it("streams new steps, evaluations and graphs as they are written, and reports truncated files", async () => {
    const path = join(folder, "b");
    const told = events("/api/events?run=b&since=1", (all) => all.some(({ data }) => isReset(data)));
    const isReset = (data: unknown) => (data as { isReset?: boolean }).isReset === true;
    await new Promise((resolve) => setTimeout(resolve, 700));
    appendFileSync(join(path, "metrics.jsonl"), metrics(2) + metrics(3).slice(0, 10));
    appendFileSync(join(path, "graphs.jsonl"), graph("second", 2));
    await new Promise((resolve) => setTimeout(resolve, 1200));
    writeFileSync(join(path, "metrics.jsonl"), metrics(1));
    const changes = (await told)
      .filter(({ event }) => event === "change")
      .map(({ data }) => data as { run: string; metrics: { step: number }[]; graphs: boolean });
    const steps = changes.map(({ metrics: lines }) => lines.map(({ step }) => step));
    expect(changes.every(({ run }) => run === "b")).toBe(true);
    expect(changes.some(({ graphs }) => graphs)).toBe(true);
    expect(steps.filter((each) => each.length > 0)).toEqual([[2], [1]]);
  });

  it("answers only its own pages, and only reads", async () => {
    const own = running.url.replace("http://", "");
    for (const headers of [
      { host: "evil.example" },
      { host: `evil.example:${own.split(":")[1]}` },
      { origin: "http://evil.example" },
      { origin: "null" },
      { "sec-fetch-site": "cross-site" },
      { "sec-fetch-site": "same-site" },
    ]) {
      expect([headers, (await ask("/api/list", headers as never)).status]).toEqual([headers, 403]);
    }
    expect((await ask("/api/list", { origin: running.url })).status).toBe(200);
    expect((await ask("/api/list", {}, "POST")).status).toBe(405);
    const page = await ask("/");
    expect(page.headers["content-security-policy"]).toMatch(
      /^default-src 'none'; script-src 'sha256-[^']+';.*connect-src 'self'; frame-ancestors 'none'$/,
    );
    expect(page.text).toContain('{"live":true}');
  });

  it("reads only what it lists", async () => {
    for (const path of [
      "/api/report?run=..",
      "/api/report?run=../..",
      "/api/report?run=.hidden/c",
      "/api/report?run=/etc",
      "/api/report?file=other.json",
      "/api/report?file=../../etc/passwd",
      "/api/graphs?run=nothing",
      "/api/graph?run=b%00&at=0",
      "/api/search?run=..&text=a",
      "/api/events?run=..",
      "/etc/passwd",
    ]) {
      const { status, text } = await ask(path);
      expect([path, status]).toEqual([path, 404]);
      expect(JSON.parse(text)).toHaveProperty("error");
    }
    for (const path of [
      "/api/graph?run=b&at=-1",
      "/api/graph?run=b&at=1e9",
      "/api/graphs",
      "/api/search?run=b",
    ]) {
      expect([path, (await ask(path)).status]).toEqual([path, 400]);
    }
    expect((await ask("/api/graph?run=b&at=999")).status).toBe(422);
  });

  it("returns no rate of an inconclusive evaluation", async () => {
    const path = join(folder, "doubtful");
    mkdirSync(path);
    const failed = {
      overall: {
        num_turns: 1,
        num_errors: 1,
        mean_reward: null,
        mean_probe_harm: 0,
        mean_response_harm: null,
        first_harmful_probe_turn: null,
        first_harmful_response_turn: null,
        harmless_probe_success: null,
      },
      per_turn: [
        {
          turn: 1,
          reward: null,
          probe_harm: 0,
          response_harm: null,
          context: "c",
          probe: "p",
          response: "",
          probe_nll: null,
          probe_tokens: null,
          error: "target: gone",
        },
      ],
    };
    const details = ["c", "d", "e"].map((context) => ({
      ...failed,
      per_turn: failed.per_turn.map((turn) => ({ ...turn, context })),
    })) as EvaluationDetail[];
    writeFileSync(
      join(path, "evaluation.json"),
      stringifyEvaluation({ summary: summarize(details), details, version: 2 }),
    );
    const { runs } = (await json("/api/list")) as { runs: { id: string; hasVerdict: boolean }[] };
    expect(runs.find(({ id }) => id === "doubtful")).toMatchObject({ hasVerdict: false, clusters: null });
    expect(runs.find(({ id }) => id === "b")).toMatchObject({ hasVerdict: true });
    rmSync(path, { recursive: true });
  });

  it("does not wait for pipes, and reports damaged files", async () => {
    const path = join(folder, "odd");
    mkdirSync(path);
    writeFileSync(join(path, "config.resolved.yaml"), "models: [\u0000");
    writeFileSync(join(path, "run.json"), "{");
    writeFileSync(join(path, "evaluation.json"), '{"summary": 1}');
    for (const name of ["metrics.jsonl", "graphs.jsonl"]) execFileSync("mkfifo", [join(path, name)]);
    const { runs } = (await json("/api/list")) as { runs: { id: string }[] };
    expect(runs.find(({ id }) => id === "odd")).toMatchObject({ steps: 0, planned: null, success: null });
    expect(await json("/api/graphs?run=odd")).toMatchObject({ total: 0 });
    const report = await ask("/api/report?run=odd");
    expect([report.status, report.text]).toEqual([422, expect.stringContaining("odd")]);
    for (const address of ["//", "/%", "/api/graph?run=%FF", "/api/list?%"]) {
      expect((await ask(address)).status).toBeLessThan(500);
    }
    rmSync(path, { recursive: true });
  });

  it("follows no link, and quotes no file in an error", async () => {
    const secret = join(folder, "..", `${basename(folder)}-secret`);
    writeFileSync(secret, "root:x:0:0\nsecond\n");
    for (const name of [
      "metrics.jsonl",
      "graphs.jsonl",
      "evaluation.json",
      "run.json",
      "evaluations.jsonl",
    ]) {
      const path = join(folder, "linked");
      mkdirSync(path);
      writeFileSync(join(path, "config.resolved.yaml"), "seed: 1\n");
      if (name !== "metrics.jsonl") writeFileSync(join(path, "metrics.jsonl"), metrics(1));
      symlinkSync(secret, join(path, name));
      expect(((await json("/api/list")) as { runs: { id: string }[] }).runs.map(({ id }) => id)).toContain(
        "linked",
      );
      const report = await ask("/api/report?run=linked");
      expect([name, report.status, report.text]).toEqual([
        name,
        422,
        expect.stringContaining(`${name}: is a link`),
      ]);
      for (const address of ["graphs?run=linked", "graph?run=linked&at=0", "search?run=linked&text=root"]) {
        expect((await ask(`/api/${address}`)).text).not.toContain("root:");
      }
      rmSync(path, { recursive: true });
    }
    // Its own files are not quoted either.
    const damaged = join(folder, "damaged");
    mkdirSync(damaged);
    writeFileSync(join(damaged, "metrics.jsonl"), "root:x:0:0\n");
    writeFileSync(join(damaged, "graphs.jsonl"), "root:x:0:0\n");
    for (const address of [
      "report?run=damaged",
      "graph?run=damaged&at=0",
      "search?run=damaged&text=this line",
    ]) {
      const { text } = await ask(`/api/${encodeURI(address)}`);
      expect(text).not.toContain("root:");
    }
    rmSync(damaged, { recursive: true });
    rmSync(secret);
  });

  it("stays responsive with endless lines, and keeps none of them", async () => {
    const path = join(folder, "endless");
    mkdirSync(path);
    for (const name of ["metrics.jsonl", "graphs.jsonl"]) {
      writeFileSync(join(path, name), metrics(1));
      // A hole in the file, so that it takes no room.
      truncateSync(join(path, name), 400 * 2 ** 20);
    }
    const before = process.memoryUsage().rss;
    const { runs } = (await json("/api/list")) as { runs: { id: string }[] };
    expect(runs.map(({ id }) => id)).toContain("endless");
    const report = await ask("/api/report?run=endless");
    expect([report.status, report.text]).toEqual([
      422,
      expect.stringContaining("metrics.jsonl:2: a line must"),
    ]);
    expect(await json("/api/graphs?run=endless")).toMatchObject({ total: 1 });
    appendFileSync(join(path, "graphs.jsonl"), `\n${graph("after", 3)}`);
    expect(await json("/api/graphs?run=endless")).toMatchObject({
      total: 3,
      entries: [{}, { prompt: "(this line is not JSON)" }, { prompt: "after", step: 3 }],
    });
    expect((await ask("/api/graph?run=endless&at=1")).text).toContain("a line must have at most 64 MiB");
    expect(await json("/api/graph?run=endless&at=2")).toMatchObject({ context: "after" });
    const told = await events("/api/events?run=endless&since=0", (all) =>
      all.some(({ event }) => event === "change"),
    );
    expect(told.find(({ event }) => event === "change")!.data).toMatchObject({ metrics: [{ step: 1 }] });
    expect(process.memoryUsage().rss - before).toBeLessThan(700 * 2 ** 20);
    rmSync(path, { recursive: true });
  }, 30_000);

  it("reports a folder with nothing to show", async () => {
    await expect(view(join(folder, "nothing"), { port: 0 })).rejects.toThrow(
      breaking("folder-not-found", "nothing"),
    );
    const port = Number(new URL(running.url).port);
    await expect(view(folder, { port })).rejects.toThrow(breaking("cannot-listen"));
  });
});
