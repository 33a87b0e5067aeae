import { describe, expect, test } from "vitest";
import { createOutput } from "../../src/cli/output.js";
import { duration, Progress } from "../../src/cli/progress.js";
import { TrainingProgress } from "../../src/cli/training-progress.js";
import type { MetricsRecord } from "../../src/records/index.js";
import { captured } from "./captured.js";

/** What the live line shows of a step. */
const record = (values: Readonly<Record<string, number | null>>): MetricsRecord => ({
  version: 1,
  step: 1,
  loss: 0.583,
  "reward/mean": -1.234,
  "success/rate": 0.125,
  "success/harmless_probe_rate": 0.031,
  "harm/probe_rate": 0.4,
  "probes/distinct": 12,
  "turns/done": 48,
  "evaluation/success_rate": 0.094,
  "evaluation/harmless_probe_success_rate": 0.031,
  ...values,
});

describe("progress", () => {
  test("elsewhere than on a terminal: plain lines, not more than one in five seconds, and the last", () => {
    const { streams, err } = captured();
    let time = 0;
    const progress = new Progress(createOutput(streams), { unit: "step", total: 20, now: () => time });
    for (let step = 1; step <= 20; step += 1) {
      time = step * 1000;
      progress.update(step, { reward: "0.5" });
    }
    progress.end();
    expect(err().split("\n")).toEqual([
      "step 1/20 · 1.0 steps/s · 19 s left · reward 0.5",
      "step 6/20 · 1.0 steps/s · 14 s left · reward 0.5",
      "step 11/20 · 1.0 steps/s · 9 s left · reward 0.5",
      "step 16/20 · 1.0 steps/s · 4 s left · reward 0.5",
      "step 20/20 · 1.0 steps/s · 20 s in all · reward 0.5",
      "",
    ]);
  });

  test("on a terminal: one line that is rewritten and never wraps; results end it", () => {
    const { streams, out, err } = captured({ terminal: true });
    const output = createOutput(streams);
    output.live("x".repeat(100));
    output.live("second");
    output.result("done");
    expect(err()).toBe(`\r\u001B[2K${"x".repeat(39)}\r\u001B[2Ksecond\n`);
    expect(out()).toBe("done\n");
  });

  test.each([
    [80, "step 120/1000 · 18 min left · reward −1.234 · success 12.3 % · dev 15.0 %"],
    [
      120,
      "step 120/1000 · 18 min left · loss 0.583 · reward −1.234 · success 12.3 % · dev 15.0 % · now update 3/8",
    ],
    [50, "step 120/1000 · success 12.3 % · dev 15.0 %"],
  ])("at %d columns whole figures stand on the line, the most telling first to stay", (columns, expected) => {
    const { streams, err } = captured({ terminal: true, columns });
    let time = 0;
    const progress = new Progress(createOutput(streams), {
      unit: "step",
      total: 1000,
      dispensable: ["rate", "now", "loss", "reward", "left"],
      now: () => time,
    });
    time = 144_000;
    progress.update(120, {
      loss: "0.583",
      reward: "−1.234",
      success: "12.3 %",
      dev: "15.0 %",
      now: "update 3/8",
    });
    const line = err().split("\u001B[2K").at(-1)!;
    expect(line.replace("17 min 36 s", "18 min")).toBe(expected);
    expect(Array.from(line).length).toBeLessThan(columns);
  });

  test.each([
    [
      120,
      40,
      "step 12/40 · success 12.5 % (harmless 3.1 %) · probes 40.0 % harmful, 12/48 distinct · dev 9.4 % (3.1 %)",
    ],
    [80, 40, "step 12/40 · success 12.5/3.1 % · harmful 40 % · distinct 25 % · dev 9.4/3.1 %"],
    [80, 4000, "step 12/4000 · success 13/3 % · harmful 40 % · distinct 25 % · dev 9/3 %"],
  ])(
    "at %d columns (%d steps) success, success with harmless probes only, harmful and distinct probes are all there",
    (columns, steps, expected) => {
      const { streams, err } = captured({ terminal: true, columns });
      const progress = new TrainingProgress(createOutput(streams), steps);
      progress.step(record({ step: 12 }));
      const line = err().split("\u001B[2K").at(-1)!;
      expect(line.replace(/ · \d+ s left/u, "")).toBe(expected);
      expect(Array.from(line).length).toBeLessThan(columns);
    },
  );

  test("at 80 columns the longest values of a long run still fit, and what is unknown is a dash", () => {
    const { streams, err } = captured({ terminal: true, columns: 80 });
    const progress = new TrainingProgress(createOutput(streams), 100_000);
    const all = {
      "success/rate": 1,
      "evaluation/success_rate": 1,
      "harm/probe_rate": 0.994,
      "probes/distinct": 48,
    };
    const harmless = { "success/harmless_probe_rate": 0.99, "evaluation/harmless_probe_success_rate": 0.99 };
    progress.step(record({ step: 99_999, ...all, ...harmless }));
    expect(err().split("\u001B[2K").at(-1)).toBe(
      "99999/100000 · success 100/99 % · harmful 99 % · distinct 100 % · dev 100/99 %",
    );
    const unknown = captured({ terminal: true, columns: 80 });
    const nothing = { "success/rate": null, "success/harmless_probe_rate": null, "harm/probe_rate": null };
    const first = new TrainingProgress(createOutput(unknown.streams), 4);
    first.step(record({ step: 1, ...nothing, "probes/distinct": null, "evaluation/success_rate": null }));
    expect(unknown.err().split("\u001B[2K").at(-1)).toMatch(
      / · success – \(harmless –\) · probes – harmful, –\/48 distinct$/u,
    );
  });

  test("after a resume, the rate is that of the steps done since", () => {
    const { streams, err } = captured();
    let time = 0;
    const progress = new Progress(createOutput(streams), { unit: "step", total: 1000, now: () => time });
    progress.startFrom(900);
    time = 20_000;
    progress.update(910, {});
    expect(err()).toBe("step 910/1000 · 2.0 s/step · 3 min 00 s left\n");
  });

  test("--quiet leaves results and alerts", () => {
    const { streams, out, err } = captured();
    const output = createOutput(streams, { quiet: true });
    output.note("note");
    output.live("live");
    output.alert("alert");
    output.json({ text: "\u009B" });
    expect(err()).toBe("alert\n");
    expect(out()).toBe('{"text":"\\u009b"}\n');
  });

  test.each([
    [0.4, "0 s"],
    [59.4, "59 s"],
    [65, "1 min 05 s"],
    [7620, "2 h 07 min"],
  ])("duration %d", (seconds, text) => {
    expect(duration(seconds)).toBe(text);
  });
});
