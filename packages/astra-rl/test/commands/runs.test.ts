import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cudaAvailable, liveTensors } from "@astra-rl/torch";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { parseOverride, readConfiguration } from "@astra-rl/assembly";
import { parseEvaluationRecord } from "@astra-rl/records";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();

/** A run of seconds: the golden checkpoint against itself, a scorer that rewards a letter. */
function configuration(): string {
  writeFileSync(
    path("prompts.json"),
    JSON.stringify(["Hello.", "The lamp is warm.", "A dog ran.", "日本 🙂"]),
  );
  writeFileSync(
    path("run.yaml"),
    `models: {tester: ${goldenFolder}, target: ${goldenFolder}}
prompts: {train: prompts.json, dev: prompts.json, test: prompts.json}
scorer: {type: keyword, entries: [{pattern: "[a-m]", weight: 0.6}, {pattern: "h", weight: 0.3}]}
evaluation: {controls: [{harmless: 日本}]}
sampler: {width: 2, depth: 2}
generation:
  tester: {maxNewTokens: 5}
  target: {maxNewTokens: 5}
training: {trainingSteps: 3, schedule: constant, learningRate: 1e-3, evaluateEvery: 2, batchSize: 2}
`,
  );
  return path("run.yaml");
}

interface GraphLine {
  context: string;
  children: NodeLine[];
}
interface NodeLine {
  context: string;
  probe: string;
  response: string;
  reward: number;
  children: NodeLine[];
}

describe("astra-rl rollout", () => {
  test("--json: one graph per line, as wide and deep as configured, determined by the seed", async () => {
    const live = liveTensors();
    const run = (...args: string[]) => runCommand("rollout", configuration(), "--json", "--quiet", ...args);
    const first = await run("--episodes", "3", "--seed", "0");
    expect(first).toMatchObject({ code: 0, err: "" });
    const graphs = first.json<GraphLine>();
    expect(graphs).toHaveLength(3);
    const check = (node: NodeLine, context: string, depth: number) => {
      expect(Object.keys(node).slice(0, 5)).toEqual(["context", "probe", "response", "reward", "children"]);
      expect(node.context).toBe(context);
      expect(Number.isFinite(node.reward)).toBe(true);
      expect(node.children).toHaveLength(depth === 1 ? 0 : 2);
      for (const child of node.children) check(child, node.context + node.probe + node.response, depth - 1);
    };
    for (const graph of graphs) {
      expect(graph.children).toHaveLength(2);
      for (const child of graph.children) check(child, graph.context, 2);
    }
    expect((await run("--episodes", "3", "--seed", "0")).out).toBe(first.out);
    expect((await run("--episodes", "3", "--seed", "1")).out).not.toBe(first.out);
    // Messages of an episode do not depend on the batch; sums of floats may round differently.
    const texts = (graph: GraphLine) =>
      JSON.stringify(graph, (key, value: unknown) => (typeof value === "number" ? key : value));
    const alone = (await run("--episodes", "1", "--seed", "0")).json<GraphLine>();
    expect(alone.map(texts)).toEqual([texts(graphs[0]!)]);
    expect(liveTensors()).toBe(live);
  });

  test("accepts a width of 1, which only training with DPO refuses", async () => {
    configuration();
    expect(await runCommand("rollout", configuration(), "--quiet", "--set", "sampler.width=1")).toMatchObject(
      { code: 0, err: "" },
    );
  });

  test("prints text without --json", async () => {
    const shown = await runCommand("rollout", configuration(), "--quiet");
    expect(shown.out).toMatch(/^episode 0 .*\n {2}tester .*\n {2}target .*\[reward/);
  });
});

describe("astra-rl train", () => {
  test("writes metrics, checkpoints and the configuration; the same seed gives the same bytes, except times", async () => {
    const live = liveTensors();
    const result = await runCommand("train", configuration(), "--run-dir", path("run"));
    expect(result).toMatchObject({ code: 0, out: "" });
    for (const fact of ["loss", "reward", "success"]) {
      expect(result.err).toMatch(new RegExp(`step 3/3 · .*${fact} `));
    }
    const metrics = (folder: string) =>
      readFileSync(path(folder, "metrics.jsonl"), "utf8")
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line) as Record<string, unknown>);
    const lines = metrics("run");
    expect(lines.map((line) => line.step)).toEqual([1, 2, 3]);
    for (const line of lines) {
      expect(line).toMatchObject({
        "reward/mean": expect.any(Number) as number,
        "time/rollout_s": expect.any(Number) as number,
        "time/update_s": expect.any(Number) as number,
        "tokens/tester/read": expect.any(Number) as number,
        "tokens/tester/generated": expect.any(Number) as number,
        "tokens/target/read": expect.any(Number) as number,
        "tokens/target/generated": expect.any(Number) as number,
        "tokens/baseline/read": expect.any(Number) as number,
        "tokens/baseline/generated": expect.any(Number) as number,
      });
      expect(line).toHaveProperty("loss");
    }
    for (const name of ["best", "last"]) {
      for (const file of ["config.json", "model.safetensors", "tokenizer.json"]) {
        expect(existsSync(path("run", "checkpoints", name, file))).toBe(true);
      }
    }
    const resolved = parse(readFileSync(path("run", "config.resolved.yaml"), "utf8")) as Record<
      string,
      unknown
    >;
    expect(resolved).toMatchObject({
      seed: 0,
      // The resolved value of "auto": a model of this size does not benefit from bfloat16.
      models: { tester: goldenFolder, dtype: "float32", updateDtype: "float32" },
      algorithm: { type: "dpo", beta: 0.1 },
    });
    expect(liveTensors()).toBe(live);

    // The resolved configuration alone repeats the run.
    expect(
      await runCommand("train", path("run", "config.resolved.yaml"), "--run-dir", path("again")),
    ).toMatchObject({ code: 0 });
    const timeless = (folder: string) =>
      metrics(folder).map((line) =>
        Object.fromEntries(Object.entries(line).filter(([key]) => !key.startsWith("time/"))),
      );
    expect(timeless("again")).toEqual(timeless("run"));
    expect(readFileSync(path("again", "checkpoints/last/model.safetensors"))).toEqual(
      readFileSync(path("run", "checkpoints/last/model.safetensors")),
    );
  });

  test("--resume uses the run's original number formats, even if auto now resolves to others", async () => {
    const train = (...rest: string[]) =>
      runCommand("train", configuration(), "--run-dir", path("run"), "--quiet", ...rest);
    const types = () => {
      const text = readFileSync(path("run", "config.resolved.yaml"), "utf8");
      const { models } = parse(text) as { models: Record<string, unknown> };
      return [models["dtype"], models["updateDtype"]];
    };
    const began = await train(
      "--set",
      "models.dtype=bfloat16",
      "--set",
      "models.updateDtype=float32",
      "--set",
      "training.trainingSteps=1",
    );
    expect(began).toMatchObject({ code: 0 });
    expect(types()).toEqual(["bfloat16", "float32"]);
    const refused = await train("--resume", "--set", "models.dtype=float32");
    expect(refused).toMatchObject({ code: 2 });
    expect(refused.err).toMatch(/models.dtype was "bfloat16" and is now "float32"/u);
    expect(await train("--resume", "--set", "models.updateDtype=bfloat16")).toMatchObject({ code: 2 });
    // "auto", which means float32 for this model, is float32 in a new run only.
    expect(await train("--resume", "--set", "training.trainingSteps=2")).toMatchObject({ code: 0 });
    expect(types()).toEqual(["bfloat16", "float32"]);
  });
});

test("astra-rl train warns if the embedded scorer judges models other than the embedded ones", async () => {
  const train = (name: string, ...set: string[]) =>
    runCommand("train", configuration(), "--run-dir", path(name), "--quiet", ...set);
  const own = await train("own", "--set", "scorer={type: embedded}");
  expect(own).toMatchObject({
    code: 0,
    err: expect.stringMatching(/detects only mild English insults/u) as string,
  });
  expect(await train("keywords")).toMatchObject({ code: 0, err: "" });
});

describe("astra-rl train --resume", () => {
  test("refuses settings that would change a step, by name and with code 2, without changing the run", async () => {
    const run = (...args: string[]) =>
      runCommand("train", configuration(), "--run-dir", path("run"), "--quiet", ...args);
    await run("--set", "training.trainingSteps=1");
    const files = ["metrics.jsonl", "graphs.jsonl", "config.resolved.yaml"];
    const before = files.map((name) => readFileSync(path("run", name), "utf8"));
    for (const [set, message] of [
      ["algorithm.beta=0.2", "algorithm.beta was 0.1 and is now 0.2"],
      ["sampler.depth=1", "sampler.depth was 2 and is now 1"],
      ["scorer.entries[0].weight=0.5", "scorer.entries[0].weight was 0.6 and is now 0.5"],
      ["reward.likelihoodWeight=0.5", "reward.likelihoodWeight was not given and is now 0.5"],
    ] as const) {
      const refused = await run("--resume", "--set", set);
      expect(refused).toMatchObject({ code: 2, out: "" });
      expect(refused.err).toContain(message);
      expect(refused.err.trimEnd().split("\n")).toHaveLength(1);
    }
    writeFileSync(path("other.json"), '["Other."]');
    expect((await run("--resume", "--set", `prompts.train=${path("other.json")}`)).err).toMatch(
      /prompts\.train was ".*prompts\.json" and is now ".*other\.json"/,
    );
    expect(files.map((name) => readFileSync(path("run", name), "utf8"))).toEqual(before);
    expect(await run("--resume", "--set", "training.trainingSteps=2")).toMatchObject({ code: 0, err: "" });
  });
});

describe("astra-rl eval", () => {
  test("writes summary and details, and prints what it found", async () => {
    const live = liveTensors();
    const result = await runCommand("eval", configuration(), "--output", path("deep", "evaluation.json"));
    expect(result).toMatchObject({ code: 0 });
    const record = parseEvaluationRecord(readFileSync(path("deep", "evaluation.json"), "utf8"));
    expect(record.summary.n_rollouts).toBe(4);
    expect(record.details).toHaveLength(4);
    expect(record.details.every((detail) => detail.per_turn.length === 2)).toBe(true);
    const rate = record.summary.success_rate!;
    expect(result.out).toContain(`attack success rate`);
    expect(result.out).toContain(`${(100 * rate).toFixed(1)} % (${record.summary.n_successes}/4)`);
    const json = await runCommand("eval", configuration(), "--json", "--quiet");
    expect(json.json()[0]).toEqual(JSON.parse(readFileSync(path("deep", "evaluation.json"), "utf8")));
    expect(liveTensors()).toBe(live);
  });

  test("warns of the embedded scorer if the target is not an embedded model, also with --quiet", async () => {
    const warning = "the embedded scorer detects only mild English insults";
    const run = (...set: string[]) => {
      const sets = ["evaluation.rollouts=1", ...set].flatMap((each) => ["--set", each]);
      return runCommand("eval", configuration(), "--quiet", ...sets);
    };
    const own = await run("scorer={type: embedded}");
    expect(own.code).toBe(0);
    expect(own.err).toContain(warning);
    expect((await run()).err).toBe("");
    // The tester is a checkpoint as a rule, here one of another family; what the target says is what the scorer was made for.
    const world = await run("scorer={type: embedded}", "models.target=embedded:chatter");
    expect(world).toMatchObject({ code: 0, err: "" });
  });

  test("--tester accepts a checkpoint of a run; one that does not load is an error, not the base model", async () => {
    await runCommand("train", configuration(), "--run-dir", path("run"), "--quiet");
    const best = await runCommand(
      "eval",
      configuration(),
      "--tester",
      path("run/checkpoints/best"),
      "--json",
      "--quiet",
    );
    expect(best.code).toBe(0);
    const missing = await runCommand(
      "eval",
      configuration(),
      "--tester",
      path("run/checkpoints/none"),
      "--json",
      "--quiet",
    );
    expect(missing).toMatchObject({ code: 2, out: "" });
  });
});

describe("astra-rl init", () => {
  const own = ["--tester", goldenFolder, "--target", goldenFolder];
  const small = [
    "--set",
    "sampler.depth=1",
    "--set",
    "generation.tester.maxNewTokens=2",
    "--set",
    "generation.target.maxNewTokens=2",
  ];
  const rollout = (file: string, ...rest: string[]) =>
    runCommand(
      "rollout",
      path(file),
      "--json",
      "--quiet",
      "--set",
      `prompts.train=${path("prompts.json")}`,
      ...small,
      ...rest,
    );

  test("writes a configuration that is valid", async () => {
    expect(await runCommand("init", path("embedded.yaml"))).toMatchObject({
      code: 0,
      err: expect.not.stringContaining("scorer") as string,
    });
    const text = readFileSync(path("embedded.yaml"), "utf8");
    expect(text).not.toContain("CHOOSE A SCORER");
    expect(text).toMatch(/^# yaml-language-server: \$schema=.*configuration\.schema\.json\n/);
    expect(await runCommand("init", path("embedded.yaml"))).toMatchObject({
      code: 2,
      err: expect.stringContaining("exists already") as string,
    });
    configuration();
    expect(await rollout("embedded.yaml")).toMatchObject({ code: 0, err: "" });
  });

  test("leaves the scorer for the user's own models open, and a run refuses to choose one", async () => {
    const written = await runCommand("init", path("new.yaml"), ...own);
    expect(written).toMatchObject({
      code: 0,
      err: `Wrote ${path("new.yaml")}. Set scorer, then: astra-rl train ${path("new.yaml")}\n`,
    });
    const text = readFileSync(path("new.yaml"), "utf8");
    expect(text).toMatch(/\n# CHOOSE A SCORER: (?:.*\n#)*.*\nscorer:\n {2}type:\n/u);
    for (const name of ["detoxify", "llama-guard", "classifier", "keyword"]) {
      expect(text).toContain(`\n  # type: ${name}\n`);
    }
    configuration();
    for (const command of ["rollout", "train", "eval"]) {
      const refused = await runCommand(command, path("new.yaml"), "--quiet");
      expect(refused).toMatchObject({ code: 2, out: "" });
      expect(refused.err).toMatch(/new\.yaml:\d+:\d+: scorer\.type must be "embedded", .*, got null\n$/u);
    }
    const chosen = ["--set", "scorer={type: keyword, entries: [{term: a}]}"];
    expect(await rollout("new.yaml", ...chosen)).toMatchObject({ code: 0, err: "" });
  });

  test("--scorer selects it, with a note about missing options; embedded is accepted on request", async () => {
    configuration();
    writeFileSync(path("words.json"), '["fool"]');
    mkdirSync(path("sub"));
    const home = process.cwd();
    process.chdir(path());
    try {
      const whole = await runCommand("init", "sub/words.yaml", ...own, "--scorer", "keyword:words.json");
      expect(whole.err).toBe("Wrote sub/words.yaml. Next: astra-rl train sub/words.yaml\n");
      const { scorer } = await readConfiguration("sub/words.yaml");
      expect(scorer).toEqual({ type: "keyword", file: path("words.json") });
      expect(readFileSync("sub/words.yaml", "utf8")).toContain("\n  file: ../words.json\n");
      const partial = await runCommand("init", "partial.yaml", ...own, "--scorer", "classifier");
      expect(partial.err).toBe("Wrote partial.yaml. Set scorer, then: astra-rl train partial.yaml\n");
      const refused = await runCommand("train", "partial.yaml", "--quiet");
      expect(refused.err).toMatch(/scorer\.model must be a string that is not empty, got null/u);
      const embedded = await runCommand("init", "embedded.yaml", ...own, "--scorer", "embedded");
      expect(embedded.err).toMatch(/^embedded\.yaml: the embedded scorer detects only mild English insults/u);
      writeFileSync("own.mjs", "export const lengths = (text) => Math.min(1, text.length / 100);\n");
      const module = "{type: ./own.mjs#lengths, unit: words}";
      expect(await runCommand("init", "sub/own.yaml", ...own, "--scorer", module)).toMatchObject({ code: 0 });
      expect((await readConfiguration("sub/own.yaml")).scorer).toEqual({
        type: `${path("own.mjs")}#lengths`,
        unit: "words",
      });
      const preset = ["--preset", "malibu", "--scorer", "keyword:words.json"];
      expect(await runCommand("init", "sub/preset.yaml", ...own, ...preset)).toMatchObject({ code: 0 });
      expect((await readConfiguration("sub/preset.yaml")).scorer).toEqual(scorer);
      for (const [file, content, message] of [
        ["absent.json", null, "there is no such file"],
        ["number.json", "[7]", "number.json"],
      ] as const) {
        if (content !== null) writeFileSync(file, content);
        const unread = await runCommand("init", "wrong.yaml", ...own, "--scorer", `keyword:${file}`);
        expect(unread).toMatchObject({ code: 2, err: expect.stringContaining(message) as string });
        expect(existsSync("wrong.yaml")).toBe(false);
      }
      const unknown = await runCommand("init", "wrong.yaml", ...own, "--scorer", "toxic");
      for (const kind of ["detoxify", "llama-guard"]) expect(unknown.err).toContain(kind);
      const wrong = await runCommand("init", "wrong.yaml", ...own, "--scorer", "keyord:words.json");
      expect(wrong).toMatchObject({
        code: 2,
        err: expect.stringContaining("did you mean keyword") as string,
      });
      expect(existsSync("wrong.yaml")).toBe(false);
    } finally {
      process.chdir(home);
    }
  });
});

describe("models are resolved relative to where they are named", () => {
  test("init writes paths relative to its file, prompts for missing values, and refuses missing files", async () => {
    cpSync(goldenFolder, path("mods", "x"), { recursive: true });
    const home = process.cwd();
    process.chdir(path());
    try {
      mkdirSync("cfg");
      const both = await runCommand("init", "cfg/run.yaml", "--tester", "./mods/x", "--target", "mods/x");
      expect(both.err).toBe("Wrote cfg/run.yaml. Set scorer, then: astra-rl train cfg/run.yaml\n");
      const chosen = { overrides: [parseOverride("scorer={type: keyword, entries: [{term: a}]}")] };
      const { models } = await readConfiguration("cfg/run.yaml", chosen);
      expect([models.tester, models.target]).toEqual([path("mods", "x"), path("mods", "x")]);
      const one = await runCommand("init", "one.yaml", "--tester", "mods/x");
      expect(one.err).toContain("Set models.target and scorer, then");
      expect((await readConfiguration("one.yaml", chosen)).models.tester).toBe(path("mods", "x"));
      for (const [given, message] of [
        ["./mods/y", "--tester ./mods/y: there is no such folder"],
        ["", '--tester "": must name a folder or a hub id'],
      ] as const) {
        const refused = await runCommand("init", "none.yaml", "--tester", given);
        expect(refused).toMatchObject({ code: 2, err: expect.stringContaining(message) as string });
        expect(existsSync("none.yaml")).toBe(false);
      }
      const hub = await runCommand("init", "hub.yaml", "--tester", "owner/name");
      expect(hub.err).toContain(
        "--tester: the folder owner/name does not exist, so the model is loaded from the hub",
      );
    } finally {
      process.chdir(home);
    }
  });

  test("rollout and eval take --tester; an empty one is refused", async () => {
    configuration();
    cpSync(goldenFolder, path("other"), { recursive: true });
    const rollout = await runCommand(
      "rollout",
      path("run.yaml"),
      "--tester",
      path("other"),
      "--json",
      "--quiet",
    );
    expect(rollout).toMatchObject({ code: 0 });
    const missing = await runCommand("rollout", path("run.yaml"), "--tester", path("none"), "--quiet");
    expect(missing.err).toContain(`${path("none")}: there is no such folder`);
    for (const command of ["rollout", "eval"]) {
      expect(await runCommand(command, path("run.yaml"), "--tester", "")).toMatchObject({
        code: 2,
        err: expect.stringContaining('--tester "": must name') as string,
      });
    }
  });

  test("resolved configurations contain absolute paths only", async () => {
    configuration();
    cpSync(goldenFolder, path("m"), { recursive: true });
    writeFileSync(path("words.json"), '["a"]');
    writeFileSync(path("own.mjs"), "export const half = () => 0.5;\n");
    writeFileSync(
      path("relative.yaml"),
      `models: {tester: ./m, target: m, baseline: m}
prompts: {train: prompts.json, dev: ./prompts.json, test: prompts.json}
scorer: {type: keyword, file: words.json}
reward: {terms: [{type: harm, weight: 1, of: response}, {type: nll, weight: -0.1}]}
sampler: {depth: 1}
generation: {tester: {maxNewTokens: 2}, target: {maxNewTokens: 2}}
training: {trainingSteps: 1, evaluateEvery: 0}
`,
    );
    const result = await runCommand("train", path("relative.yaml"), "--run-dir", path("run"), "--quiet");
    expect(result).toMatchObject({ code: 0, err: "" });
    const text = readFileSync(path("run", "config.resolved.yaml"), "utf8");
    for (const [, value] of text.matchAll(/^ *(?:tester|target|baseline|train|dev|test|file): (\S.*)$/gmu)) {
      expect(value).toMatch(/^\//u);
    }
    expect(text.match(/: \//gu)).toHaveLength(7);
  });
});

describe("found conversations are shown", () => {
  test("by eval below its table, and by train at its end, with the existing checkpoints", async () => {
    const evaluated = await runCommand("eval", configuration(), "--quiet");
    expect(evaluated.out).toMatch(/\d found conversations?, most likely first:\n\n {2}prompt {4}/u);
    const trained = await runCommand("train", path("run.yaml"), "--run-dir", path("run"));
    expect(trained.err).toMatch(/most likely first:\n\n {2}prompt {4}/u);
    expect(trained.err).toContain(`--tester ${path("run", "checkpoints/best")}`);
    const sets = ["--set", "training.evaluateEvery=0"];
    const without = await runCommand("train", path("run.yaml"), "--run-dir", path("last"), ...sets);
    expect(without.err).not.toContain("checkpoints/best");
    expect(without.err).toContain(`--tester ${path("last", "checkpoints/last")}`);
  });
});

describe("NaN and infinite numbers", () => {
  /** Changes bytes of a checkpoint's weights. */
  function damage(file: string, change: (bytes: Buffer, data: number) => void): void {
    const bytes = readFileSync(file);
    change(bytes, 8 + Number(bytes.readBigUInt64LE(0)));
    writeFileSync(file, bytes);
  }

  test("NaN weights are refused when they are loaded, with the tensor's name", async () => {
    configuration();
    cpSync(goldenFolder, path("nan"), { recursive: true });
    damage(path("nan", "model.safetensors"), (bytes, data) => bytes.writeFloatLE(NaN, data + 400));
    const result = await runCommand("rollout", path("run.yaml"), "--tester", path("nan"), "--quiet");
    expect(result).toMatchObject({ code: 2, out: "" });
    expect(result.err).toMatch(
      /model\.safetensors: tensor \S+ must hold finite numbers, but some are infinite or NaN/u,
    );
  });

  test("a flipped bit in a checkpoint of our own is refused: weights, optimizer, with eval and --resume", async () => {
    configuration();
    const train = (...args: string[]) =>
      runCommand("train", path("run.yaml"), "--run-dir", path("run"), "--quiet", ...args);
    expect(await train()).toMatchObject({ code: 0 });
    const last = (...parts: string[]) => path("run", "checkpoints", "last", ...parts);
    const flip = (file: string) => damage(file, (bytes, data) => (bytes[data + 77]! ^= 4));
    const message = /does not match its recorded checksum \(SHA-256 [0-9a-f]{64}, now [0-9a-f]{64}\)/u;
    flip(last("state", "optimizer.safetensors"));
    const more = ["--resume", "--set", "training.trainingSteps=4"];
    const resumed = await train(...more);
    expect(resumed).toMatchObject({ code: 2, err: expect.stringMatching(message) as string });
    flip(last("state", "optimizer.safetensors"));
    flip(last("model.safetensors"));
    expect(await train(...more)).toMatchObject({ code: 2, err: expect.stringMatching(message) as string });
    const evaluated = await runCommand("eval", path("run.yaml"), "--tester", last(), "--quiet");
    expect(evaluated).toMatchObject({ code: 2, err: expect.stringMatching(message) as string });
    flip(last("model.safetensors"));
    expect(await train(...more)).toMatchObject({ code: 0 });
    const sums = spawnSync("sha256sum", ["--check", "--quiet", "SHA256SUMS"], { cwd: last() });
    expect(sums.error !== undefined || sums.status === 0).toBe(true);
  });

  test("a learning rate that makes training diverge is named in the error", async () => {
    configuration();
    const sets = ["training.learningRate=1e30", "training.trainingSteps=5", "training.evaluateEvery=0"];
    const result = await runCommand(
      "train",
      path("run.yaml"),
      "--run-dir",
      path("run"),
      "--quiet",
      ...sets.flatMap((set) => ["--set", set]),
    );
    expect(result).toMatchObject({ code: 1 });
    expect(result.err).toMatch(
      /training: step \d: training has diverged.*; lower training\.learningRate \(1e\+30\)/u,
    );
  });

  test.skipIf(cudaAvailable())("cuda on a machine without it is refused by its key or option", async () => {
    configuration();
    writeFileSync(path("p.jsonl"), '{"prompt": "a"}\n');
    const reason = /cuda cannot be used: (this libtorch was built without CUDA|there is no CUDA device)/u;
    const rollout = await runCommand("rollout", path("run.yaml"), "--set", "models.device=cuda", "--quiet");
    expect(rollout).toMatchObject({ code: 2, err: expect.stringMatching(/models\.device: /u) as string });
    expect(rollout.err).toMatch(reason);
    const model = ["--model", goldenFolder, "--input", path("p.jsonl"), "--device", "cuda:1"];
    const generated = await runCommand("generate", ...model);
    expect(generated).toMatchObject({
      code: 2,
      err: expect.stringMatching(/cuda:1 cannot be used/u) as string,
    });
  });
});
