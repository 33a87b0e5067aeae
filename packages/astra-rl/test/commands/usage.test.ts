import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { expect, describe, test } from "vitest";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();

/** Exactly one line that says what is wrong, and exit code 2. */
async function expectMistake(args: readonly string[], message: string | RegExp): Promise<void> {
  const { code, out, err } = await runCommand(...args);
  expect(err).toMatch(message);
  expect(err.trimEnd().split("\n")).toHaveLength(1);
  expect(err).toMatch(/^astra-rl: /);
  expect(err).not.toMatch(/\n\s+at /);
  expect(out).toBe("");
  expect(code).toBe(2);
}

function configuration(change = "", models = `{tester: ${goldenFolder}, target: ${goldenFolder}}`): string {
  const text = [
    `models: ${models}`,
    `prompts: {train: prompts.json, dev: prompts.json, test: prompts.json}`,
    `scorer: {type: keyword, entries: [{term: e}]}`,
    change,
  ].join("\n");
  writeFileSync(path("run.yaml"), `${text}\n`);
  writeFileSync(path("prompts.json"), JSON.stringify(["Hello.", "The lamp is warm."]));
  return path("run.yaml");
}

describe("wrong command lines", () => {
  test.each([
    [["trian"], /unknown command 'trian'/],
    [["generate", "--model", "x", "--input", "y", "--modle", "x"], /unknown option '--modle'/],
    [["generate", "--input", "x"], /required option '--model <model>' not specified/],
    [["train"], /missing required argument 'config'/],
    [["demo", "--algorithm", "mpo"], /Allowed choices are .*dpo.*ppo/],
    [["demo", "--seed", "x"], /must be a whole number of at least 0/],
    [["generate", "--model", "x", "--input", "y", "--top-p", "1.5"], /must be greater than 0 and at most 1/],
  ])("%j", async (args, message) => {
    const { code, err } = await runCommand(...args);
    expect(err).toMatch(message);
    expect(err).toMatch(/^astra-rl: /);
    expect(code).toBe(2);
  });

  test("--help and --version end with code 0, no arguments with 2", async () => {
    const help = await runCommand("--help");
    expect(help.code).toBe(0);
    for (const command of [
      "demo",
      "init",
      "train",
      "eval",
      "rollout",
      "logprobs",
      "generate",
      "score",
      "encode",
      "doctor",
    ]) {
      expect(help.out).toMatch(new RegExp(`^  ${command} `, "m"));
      expect(await runCommand(command, "--help")).toMatchObject({ code: 0 });
    }
    expect((await runCommand("--version")).out).toMatch(/^\d+\.\d+\.\d+\n$/);
    expect((await runCommand()).code).toBe(2);
  });
});

describe("a folder where a file is to be", () => {
  test.each([
    [["gate", "FOLDER", "--max-success", "5%"], "an evaluation"],
    [["compare", "FOLDER", "FOLDER"], "an evaluation"],
    [["audit", "FOLDER", "--sample", "3", "--output", "sheet.csv"], "an evaluation"],
    [["replay", "FOLDER", "run.yaml"], "a bundle"],
  ])("%j names it, says what was expected, and which file is in it", async (args, what) => {
    writeFileSync(path("evaluation-after.json"), "{}");
    const folder = path();
    await expectMistake(
      args.map((each) => (each === "FOLDER" ? folder : each)),
      new RegExp(
        `: ${folder}: must be ${what}, .* got a folder; name a file, such as .*evaluation-after\\.json`,
        "u",
      ),
    );
  });
});

describe("wrong configurations", () => {
  test.each([
    ["smapler: {width: 2}", /run\.yaml:4:1: unknown key "smapler"; did you mean sampler\?/],
    ["sampler: {width: 0}", /sampler\.width must be a whole number of at least 1, got 0/],
    ["sampler: {depth: -1}", /sampler\.depth must be a whole number .*, got -1/],
    [
      "training: {learningRate: .nan}",
      /training\.learningRate must be a finite number greater than 0, got NaN/,
    ],
    ["training: {learningRate: 0}", /training\.learningRate must be a finite number greater than 0, got 0/],
    ["sampler: {width: 1}", /DPO.*width/],
  ])("train with %s", async (change, message) => {
    await expectMistake(["train", configuration(change), "--run-dir", path("run"), "--quiet"], message);
  });

  test("--set is checked like the file", async () => {
    await expectMistake(
      ["train", configuration(), "--set", "training.learningRate=fast"],
      /--set training\.learningRate=fast: .* must be "auto" or a number above 0/,
    );
  });

  test.each([
    ["missing.json", undefined, /missing\.json: cannot read prompts: there is no such file/],
    ["empty.json", "", /empty\.json: is empty/],
    ["none.json", "[]", /none\.json: contains no prompts/],
    ["numbers.json", '["a", 7]', /numbers\.json: prompt 2 must be a string, got a number \(7\)/],
    ["object.json", '{"a": 1}', /object\.json: prompts must be an array of strings/],
  ])("prompts in %s", async (name, content, message) => {
    if (content !== undefined) writeFileSync(path(name), content);
    const args = ["--set", `prompts.train=${path(name)}`, "--quiet"];
    await expectMistake(["rollout", configuration(), ...args], message);
    await expectMistake(["train", configuration(), "--run-dir", path("run"), ...args], message);
  });

  test("a run folder that is in use, is a file, or cannot be written", async () => {
    mkdirSync(path("used"));
    writeFileSync(path("used", "metrics.jsonl"), "");
    await expectMistake(
      ["train", configuration(), "--run-dir", path("used"), "--quiet"],
      /used: already contains files/,
    );
    await expectMistake(
      ["train", configuration(), "--run-dir", path("prompts.json", "x"), "--quiet"],
      /is a file, not a folder/,
    );
    await expectMistake(
      ["train", configuration(), "--run-dir", "/proc/astra-rl-run", "--quiet"],
      /\/proc\/astra-rl-run/,
    );
  });
});

describe("wrong checkpoints", () => {
  const copy = (): string => {
    cpSync(goldenFolder, path("model"), { recursive: true });
    return path("model");
  };
  const edit = (file: string, change: (fields: Record<string, unknown>) => void): string => {
    const folder = copy();
    const fields = JSON.parse(readFileSync(path("model", file), "utf8")) as Record<string, unknown>;
    change(fields);
    writeFileSync(path("model", file), JSON.stringify(fields));
    return folder;
  };
  /** The same checkpoint with another safetensors header. */
  const withHeader = (
    change: (header: Record<string, { dtype: string; shape: number[]; data_offsets: number[] }>) => void,
  ): string => {
    const folder = copy();
    const bytes = readFileSync(path("model", "model.safetensors"));
    const length = Number(bytes.readBigUInt64LE(0));
    const header = JSON.parse(bytes.toString("utf8", 8, 8 + length)) as Record<
      string,
      { dtype: string; shape: number[]; data_offsets: number[] }
    >;
    change(header);
    const text = Buffer.from(JSON.stringify(header));
    const size = Buffer.alloc(8);
    size.writeBigUInt64LE(BigInt(text.length));
    writeFileSync(
      path("model", "model.safetensors"),
      Buffer.concat([size, text, bytes.subarray(8 + length)]),
    );
    return folder;
  };
  const weight = "transformer.h.0.ln_1.weight";

  test.each<[string, () => string, RegExp]>([
    ["a missing folder", () => path("nowhere"), /nowhere: there is no such folder/],
    ["an empty folder", () => (mkdirSync(path("model")), path("model")), /config\.json/],
    [
      "truncated weights",
      () => {
        const folder = copy();
        writeFileSync(
          path("model", "model.safetensors"),
          readFileSync(path("model", "model.safetensors")).subarray(0, 5000),
        );
        return folder;
      },
      /model\.safetensors/,
    ],
    [
      "weights that are no safetensors",
      () => {
        const folder = copy();
        writeFileSync(path("model", "model.safetensors"), "not weights at all");
        return folder;
      },
      /model\.safetensors/,
    ],
    [
      "a tensor of another dtype",
      () => withHeader((header) => void (header[weight]!.dtype = "I32")),
      /ln_1\.weight/,
    ],
    [
      "a tensor of another shape",
      () => withHeader((header) => void (header[weight]!.shape = [20, 2])),
      /ln_1\.weight/,
    ],
    [
      "a missing tensor",
      () =>
        withHeader((header) => {
          // Renamed, since a hole in the file would be another mistake.
          header.other = header[weight]!;
          delete header[weight];
        }),
      /ln_1\.weight/,
    ],
    [
      "a vocabulary smaller than the tokenizer's",
      () => edit("config.json", (fields) => void (fields.vocab_size = 100)),
      /vocab|tokenizer/,
    ],
    [
      "an architecture that nobody knows",
      () =>
        edit(
          "config.json",
          (fields) =>
            void Object.assign(fields, { model_type: "parrot", architectures: ["ParrotForCausalLM"] }),
        ),
      /Parrot/,
    ],
    [
      "a config that is no JSON",
      () => {
        const folder = copy();
        writeFileSync(path("model", "config.json"), "{");
        return folder;
      },
      /config\.json/,
    ],
    [
      "pickled weights that are none",
      () => {
        const folder = copy();
        renameSync(path("model", "model.safetensors"), path("model", "pytorch_model.bin"));
        return folder;
      },
      /pytorch_model\.bin: cannot be read as a state_dict/,
    ],
  ])("%s", async (_, make, message) => {
    writeFileSync(path("prompts.jsonl"), '{"prompt":"a"}\n');
    const folder = make();
    await expectMistake(
      ["generate", "--model", folder, "--input", path("prompts.jsonl"), "--greedy", "--quiet"],
      message,
    );
    await expectMistake(
      [
        "train",
        configuration("", `{tester: ${folder}, target: ${folder}}`),
        "--run-dir",
        path("run"),
        "--quiet",
      ],
      message,
    );
  });
});

describe("a disk that is full or read-only", () => {
  const isRoot = process.getuid?.() === 0;
  const mount = (...options: string[]) =>
    spawnSync("mount", ["-t", "tmpfs", ...options, "tmpfs", path("disk")], { encoding: "utf8" }).status === 0;

  test.runIf(isRoot)("is reported by train and eval with code 2", async ({ skip }) => {
    mkdirSync(path("disk"));
    if (!mount("-o", "size=64k")) skip("mounting is not allowed here");
    try {
      writeFileSync(path("disk", "filler"), Buffer.alloc(60_000));
      const small = [
        "generation.tester.maxNewTokens=2",
        "generation.target.maxNewTokens=2",
        "training.trainingSteps=1",
      ];
      const set = small.flatMap((text) => ["--set", text]);
      await expectMistake(
        ["train", configuration(), "--run-dir", path("disk", "run"), "--quiet", ...set],
        /disk is full/,
      );
      const output = path("disk", "evaluation.json");
      const many = JSON.stringify(Array.from({ length: 40 }, (_, index) => `Prompt ${index}`));
      writeFileSync(path("many.json"), many);
      const evaluation = [
        "eval",
        configuration(),
        "--output",
        output,
        "--quiet",
        "--set",
        `prompts.test=${path("many.json")}`,
      ];
      await expectMistake([...evaluation, ...set], /disk is full/);
      spawnSync("mount", ["-o", "remount,ro", path("disk")]);
      await expectMistake(
        ["train", configuration(), "--run-dir", path("disk", "other"), "--quiet", ...set],
        /read-only/,
      );
    } finally {
      spawnSync("umount", [path("disk")]);
    }
  });
});
