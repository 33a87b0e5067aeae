import { describe, expect, test } from "vitest";
import { duration, Progress } from "@astra-rl/assembly/command";
import { createOutput } from "@astra-rl/assembly/program";
import type { MetricsRecord } from "@astra-rl/records";
import { trainingProgress } from "../../../assembly/src/command/progress.js";
import { captured } from "../support/captured.js";

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
  test("without a terminal: prints plain lines, at most one in five seconds, and the last", () => {
    const { streams, err } = captured();
    let time = 0;
    const progress = new Progress(createOutput(streams), { unit: "step", total: 20, now: () => time });
    for (let step = 1; step <= 20; step += 1) {
      time = step * 1000;
      progress.update(step, ["reward 0.5"]);
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

  test("on a terminal: rewrites one line that never wraps, and ends it before results", () => {
    const { streams, out, err } = captured({ terminal: true });
    const output = createOutput(streams);
    output.live("x".repeat(100));
    output.live("second");
    output.result("done");
    expect(err()).toBe(`\r\u001B[2K${"x".repeat(39)}\r\u001B[2Ksecond\n`);
    expect(out()).toBe("done\n");
  });

  test("keeps notes above the live lines, and rewrites a panel as a whole", () => {
    const { streams, err } = captured({ terminal: true });
    const output = createOutput(streams);
    output.live("a", "b");
    output.note("note");
    output.live("c");
    output.endLive();
    const erased = "\r\u001B[2K\u001B[1A\u001B[2K";
    expect(err()).toBe(`\r\u001B[2Ka\nb${erased}note\na\nb${erased}c\n`);
  });

  test("a terminal with room shows a panel: the rates with their names, terms of the reward, the policy, the costs", () => {
    const { streams, err } = captured({ terminal: true, columns: 100, rows: 24 });
    const progress = trainingProgress(createOutput(streams), 13, {
      spending: () => ["target: 7 calls, $0.01"],
    });
    const values = {
      "reward/term/nll": 0.512,
      "reward/term/harm": 0.4,
      "drift/per_token": 0.253,
      "policy/nll": 1.5,
      "gradient/norm": 2,
      "probes/self_bleu": 0.75,
      "goals/tried": 5,
      "goals/reached": 2,
      "goals/success/insults": 0.4,
      "evaluation/harmless_probe_success_lower": 0.01,
      "evaluation/harmless_probe_success_upper": 0.06,
      "evaluation/probe_nll": 0.6,
      "evaluation/clusters": 3,
      "tokens/tester/read": 3000,
      "time/rollout_s": 1.5,
    };
    progress.step(record({ step: 12, ...values }));
    const lines = err().split("\u001B[2K").at(-1)!.split("\n");
    expect(lines[0]).toMatch(/^step 12\/13 · .* left$/u);
    expect(lines.slice(1)).toEqual([
      "  success  by harmless probes 3.1 % ▁ · any 12.5 %",
      "  goals    reached 2 of 5 · insults 40.0 %",
      "  dev 12   by harmless probes 3.1 % (1.0 to 6.0 %) · NLL 0.60 · clusters 3",
      "  probes   NLL 0.51 · harmful 40.0 % · distinct 12/48 · self-BLEU 0.75",
      "  reward   −1.234 (nll 0.51, harm 0.40)",
      "  policy   loss 0.583 · KL 0.25 a token · entropy about 1.50 · gradient 2.00",
      "  work     2,000 tokens/s · target: 7 calls, $0.01",
      "           Ctrl-\\ shows a conversation of the last step",
    ]);
    // A step without an evaluation keeps the last one.
    progress.step(record({ step: 13, "evaluation/success_rate": null }));
    expect(err().split("\u001B[2K").at(-1)).toContain(
      "dev 12   by harmless probes 3.1 % (1.0 to 6.0 %) · NLL 0.60 · clusters 3",
    );
    // The line stays, the panel is erased.
    progress.end();
    expect(err().split("\u001B[2K").at(-1)).toMatch(/^step 13\/13 [^\n]* in all\n$/u);
  });

  const live = (columns: number, values: Readonly<Record<string, number | null>>, steps = 1000) => {
    const { streams, err } = captured({ terminal: true, columns, rows: 4 });
    trainingProgress(createOutput(streams), steps).step(record(values));
    return err().split("\u001B[2K").at(-1)!;
  };

  test.each([50, 80, 120, 200])(
    "at %d columns shows count, speed and time left, and only whole facts",
    (columns) => {
      const long = { step: 99_999, "success/rate": 1, "reward/mean": -12.3456, "probes/distinct": 48 };
      for (const line of [live(columns, { step: 12 }), live(columns, long, 100_000)]) {
        expect(Array.from(line).length).toBeLessThan(columns);
        const [count, speed, left, ...facts] = line.split(" · ");
        expect(count).toMatch(/^step \d+\/\d+$/u);
        expect(speed).toMatch(/^[\d.]+ (steps\/s|s\/step)$/u);
        expect(left).toMatch(/ left$/u);
        for (const fact of facts) expect(fact).toMatch(/^[a-z][a-z ]+ [−\d]\S*( %)?$/u);
      }
    },
  );

  test("at 80 columns shows success and reward, at 200 also figures of probes, each with its name", () => {
    expect(live(80, { step: 12 }, 40)).toMatch(/ · success 12\.5 % .*· reward −1\.234/u);
    expect(live(240, { step: 12 })).toMatch(
      /success by harmless probes 3\.1 % .*· harmful probes 40\.0 % · distinct probes 12\/48/u,
    );
    expect(live(240, { step: 12 })).toContain("dev success 9.4 %");
  });

  test("of a target in training shows its answers, and no success: nobody attacks it", () => {
    for (const rows of [4, 24]) {
      const { streams, err } = captured({ terminal: true, columns: 240, rows });
      const progress = trainingProgress(createOutput(streams), 24, { trainsTarget: true });
      progress.step(record({ step: 12, "reward/term/harm": -0.4 }));
      const shown = err().split("\u001B[2K").at(-1)!;
      expect(shown).toMatch(/harmful (?:answers )?40\.0 % · distinct (?:answers )?12\/48/u);
      expect(shown).not.toMatch(/success|probe|dev|conversation/u);
    }
  });

  test("shows a dash for unknown values", () => {
    const nothing = { "success/rate": null, "success/harmless_probe_rate": null, "harm/probe_rate": null };
    const line = live(240, { step: 1, ...nothing, "probes/distinct": null, "evaluation/success_rate": null });
    expect(line).toMatch(/success – .* · harmful probes – · distinct probes –\/48/u);
  });

  test("after a resume, the rate is that of the steps done since", () => {
    const { streams, err } = captured();
    let time = 0;
    const progress = new Progress(createOutput(streams), { unit: "step", total: 1000, now: () => time });
    progress.startFrom(900);
    time = 20_000;
    progress.update(910);
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
