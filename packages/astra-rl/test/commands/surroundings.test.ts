import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { variants } from "../../../../scripts/rounds.js";
import { readConfiguration } from "@astra-rl/assembly";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

// The program's environment: pipes, full disks, terminals, signals, other processes. Tested as installed:
// set-up has built it, `npm test` begins with set-up.
const program = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));
const { path } = temporaryFolder();

const shell = (command: string) =>
  spawnSync("bash", ["-c", command], {
    encoding: "utf8",
    env: { ...process.env, A: `${process.execPath} ${program}`, OMP_NUM_THREADS: "1" },
    cwd: path(),
  });

function configuration(training = "trainingSteps: 6, evaluateEvery: 0"): string {
  writeFileSync(path("prompts.json"), '["Hello.", "The lamp is warm."]');
  writeFileSync(path("texts.jsonl"), '{"text": "Get lost."}\n');
  writeFileSync(
    path("run.yaml"),
    `models: {tester: ${goldenFolder}, target: ${goldenFolder}}
prompts: {train: prompts.json, dev: prompts.json, test: prompts.json}
scorer: {type: keyword, entries: [{pattern: "[a-m]", weight: 0.6}]}
evaluation: {controls: [{harmless: 日本}]}
sampler: {depth: 1}
generation: {tester: {maxNewTokens: 3}, target: {maxNewTokens: 3}}
training: {${training}}
`,
  );
  return path("run.yaml");
}

describe("limits of the process", () => {
  test("eight gigabytes of addresses are enough for every command", () => {
    configuration("trainingSteps: 1, evaluateEvery: 0");
    const limited = shell(
      "ulimit -v 8000000; $A --version && $A train run.yaml --run-dir run --quiet && $A report run --output page.html --quiet",
    );
    expect(limited).toMatchObject({ stdout: "0.1.0\n", stderr: "", status: 0 });
  });

  test("doctor reports insufficient address space instead of retrying forever", () => {
    const limited = shell("ulimit -v 2100000; timeout 40 $A doctor");
    expect(limited.stdout).toMatch(
      /^broken: the engine cannot be loaded: the limit on this process's address space/mu,
    );
    expect(limited.stdout).toMatch(
      /leaves \d+ MiB, and 1 thread of the engine need \d+ MiB; raise the limit/u,
    );
    expect(limited).toMatchObject({ status: 1 });
  });

  test("twenty open files are too few, which is reported in a sentence", () => {
    const { stdout, stderr, status } = shell("ulimit -n 20; $A --version");
    expect(stdout).toBe("");
    expect(stderr).toBe(
      "astra-rl: this process may open too few files to start; raise the limit (ulimit -n 1024)\n",
    );
    expect(status).toBe(2);
  });

  test.each(variants(["4096", "100000", "99999999999999999"]))(
    "%s threads (in the night many more) are bounded, with a line",
    (count) => {
      configuration();
      const began = performance.now();
      const { stderr, status } = shell(`OMP_NUM_THREADS=${count} timeout 40 $A rollout run.yaml --quiet`);
      expect(stderr).toMatch(
        new RegExp(`^OMP_NUM_THREADS: ${count} threads are more than can be of use; taking \\d+\n$`),
      );
      expect(status).toBe(0);
      expect(performance.now() - began).toBeLessThan(40_000);
    },
  );
});

describe("unresponsive parts", () => {
  const MODULE = `
export const judge = () => new Promise(() => {});
export class Judge { name = "judge"; score() { return new Promise(() => {}); } }
export const term = () => new Promise(() => {});
export const server = () => fetch("http://127.0.0.1:" + process.env.PORT);
`;

  test("a judge: its texts fail at the deadline, in every command", async () => {
    configuration("trainingSteps: 1, evaluateEvery: 0");
    writeFileSync(path("never.mjs"), MODULE);
    for (const judge of ["judge", "Judge"]) {
      const spec = `{type: ${path("never.mjs")}#${judge}, deadline: 0.2}`;
      const scorer = ["--quiet", "--set", `scorer=${spec}`];
      const trained = await runCommand(
        "train",
        path("run.yaml"),
        "--run-dir",
        path(`run-${judge}`),
        ...scorer,
      );
      expect(trained.err).toMatch(/gave no answer within 0\.2 s/);
      expect(trained.code).toBe(3);
      const evaluated = await runCommand("eval", path("run.yaml"), ...scorer);
      expect(evaluated.out).toContain("gave no answer within 0.2 s");
      expect(evaluated.code).toBe(3);
      const scored = await runCommand("score", "--scorer", spec, "--input", path("texts.jsonl"), "--quiet");
      expect(scored.out).toContain("gave no answer within 0.2 s");
      expect(scored.err).toBe("astra-rl: score: 1 of 1 texts could not be scored\n");
      expect(scored.code).toBe(1);
    }
  }, 120_000);

  test("others: the program ends with a sentence, not only with Node's exit code", () => {
    configuration("trainingSteps: 1, evaluateEvery: 0");
    writeFileSync(path("never.mjs"), MODULE);
    const reward = "--set 'reward={terms: [{type: ./never.mjs#term, weight: 1}]}'";
    const { stderr, status } = shell(`timeout 50 $A train run.yaml --run-dir run --quiet ${reward}`);
    expect(stderr).toBe(
      "astra-rl: what it waited for can no longer come: a promise of a module never settles\n",
    );
    expect(status).toBe(1);
  });

  test("a server: the first Ctrl-C stops at once, and nothing keeps the process", async () => {
    configuration("trainingSteps: 1, evaluateEvery: 0");
    writeFileSync(path("never.mjs"), MODULE);
    const server = createServer(() => {});
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const asked = once(server, "request");
    const { port } = server.address() as AddressInfo;
    const args = ["train", path("run.yaml"), "--run-dir", path("run"), "--quiet"];
    const child = spawn(process.execPath, [program, ...args, "--set", "scorer={type: ./never.mjs#server}"], {
      cwd: path(),
      env: { ...process.env, OMP_NUM_THREADS: "1", PORT: String(port) },
    });
    let errors = "";
    child.stderr.setEncoding("utf8").on("data", (data) => (errors += data));
    await asked;
    const began = performance.now();
    child.kill("SIGINT");
    const [code] = (await once(child, "close")) as [number];
    expect(performance.now() - began).toBeLessThan(5000);
    expect(errors).toContain("stopped after step 0 of 1");
    expect(errors).toContain("it was only waiting for an answer");
    expect(code).toBe(1);
    server.closeAllConnections();
    server.close();
  }, 60_000);
});

describe("standard output", () => {
  test("that is closed does not end training", () => {
    configuration();
    const { stdout, stderr } = shell(
      "$A train run.yaml --run-dir run --json --quiet | head -1 >/dev/null; echo ${PIPESTATUS[0]}",
    );
    expect(stdout).toBe("0\n");
    expect(stderr).toBe(
      "astra-rl: standard output was closed by its reader; training continues; metrics.jsonl contains every step\n",
    );
    expect(readFileSync(path("run", "metrics.jsonl"), "utf8").trimEnd().split("\n")).toHaveLength(6);
  });

  test.skipIf(!existsSync("/dev/full"))(
    "that is full ends every command (in the night all of them) with a sentence and code 2",
    () => {
      configuration("trainingSteps: 1, evaluateEvery: 0");
      const commands = [
        "train run.yaml --run-dir full --json --quiet",
        "train --help",
        "init -",
        "score --scorer embedded --input texts.jsonl --quiet",
        "--help",
        "--version",
        "doctor",
        "rollout run.yaml --quiet",
        "eval run.yaml --quiet",
        `encode --model ${goldenFolder} --input texts.jsonl --quiet`,
      ];
      for (const command of variants(commands, 4)) {
        const { status, stderr } = shell(`$A ${command} > /dev/full`);
        expect([command, status]).toEqual([command, 2]);
        expect(stderr.split("\n")[0]).toMatch(
          /^astra-rl: standard output cannot be written: the disk is full \(ENOSPC\)/u,
        );
        expect(stderr).not.toMatch(/^ +at /mu);
      }
      // The training result exists nevertheless.
      expect(readdirSync(path("full", "checkpoints"))).toEqual(["last"]);
    },
    120_000,
  );
});

describe("outputs", () => {
  test("replace regular files only, and follow links", async () => {
    configuration();
    spawnSync("mkfifo", [path("pipe")]);
    mkdirSync(path("folder"));
    for (const [name, what] of [
      ["pipe", "it is a pipe, and only regular files are replaced"],
      ["folder", "there is a folder of that name"],
    ] as const) {
      const refused = await runCommand("eval", path("run.yaml"), "--output", path(name), "--quiet");
      expect(refused).toMatchObject({ code: 2, out: "" });
      expect(refused.err).toContain(what);
    }
    expect(statSync(path("pipe")).isFIFO()).toBe(true);
    if (existsSync("/dev/null")) {
      const refused = await runCommand("init", "/dev/null", "--force");
      expect(refused).toMatchObject({ code: 2, err: expect.stringContaining("it is a device") as string });
    }
    writeFileSync(path("file.json"), "old");
    symlinkSync(path("file.json"), path("link.json"));
    expect(
      await runCommand("eval", path("run.yaml"), "--output", path("link.json"), "--quiet"),
    ).toMatchObject({
      code: 0,
    });
    expect(JSON.parse(readFileSync(path("file.json"), "utf8"))).toHaveProperty("summary");
  });

  test('"-" is standard output', async () => {
    const result = await runCommand("eval", configuration(), "--output", "-", "--quiet");
    expect(result.json<{ summary: object }>()[0]).toHaveProperty("summary");
    expect((await runCommand("init", "-")).out).toMatch(/^# yaml-language-server/u);
  });

  test("honour the umask, also in checkpoints", () => {
    configuration("trainingSteps: 1, evaluateEvery: 1");
    const { status } = shell("umask 027; $A train run.yaml --run-dir run --quiet");
    expect(status).toBe(0);
    const wrong: string[] = [];
    for (const name of ["", ...readdirSync(path("run"), { recursive: true, encoding: "utf8" })]) {
      const stats = statSync(path("run", name));
      const mode = stats.mode & 0o777;
      if (mode !== (stats.isDirectory() ? 0o750 : 0o640)) wrong.push(`${name} ${mode.toString(8)}`);
    }
    expect(wrong).toEqual([]);
  });
});

test.skipIf(!existsSync("/dev/zero"))("inputs that never end are refused", async () => {
  writeFileSync(path("one.jsonl"), '{"text": "Hello."}\n');
  for (const args of [
    ["score", "--scorer", "embedded", "--input", "/dev/zero"],
    ["score", "--scorer", "keyword:/dev/zero", "--input", path("one.jsonl")],
    ["train", "/dev/zero"],
  ]) {
    const result = await runCommand(...args);
    expect(result).toMatchObject({ code: 2, out: "" });
    expect(result.err).toContain("/dev/zero: is a device that gives more than 64 MiB");
  }
});

describe("train --resume", () => {
  const resume = (...args: string[]) => runCommand("train", path("run.yaml"), "--resume", "--quiet", ...args);

  test("without a run folder, with an absent one or one without a checkpoint is refused, and changes nothing", async () => {
    configuration();
    expect(await resume()).toMatchObject({
      code: 2,
      err: expect.stringContaining("requires --run-dir") as string,
    });
    const absent = await resume("--run-dir", path("rnu"));
    expect(absent).toMatchObject({ code: 2 });
    expect(absent.err).toContain(`${path("rnu")}: there is no such run folder to resume`);
    expect(existsSync(path("rnu"))).toBe(false);
    await runCommand("train", path("run.yaml"), "--run-dir", path("run"), "--quiet");
    rmSync(path("run", "checkpoints", "last"), { recursive: true });
    const before = readFileSync(path("run", "metrics.jsonl"), "utf8");
    const lost = await resume("--run-dir", path("run"));
    expect(lost).toMatchObject({ code: 2 });
    expect(lost.err).toContain(
      `${path("run", "checkpoints", "last")}: there is no checkpoint to resume from`,
    );
    expect(readFileSync(path("run", "metrics.jsonl"), "utf8")).toBe(before);
    expect(existsSync(path("run", "run.lock"))).toBe(false);
  });

  test("of a run that another process is training is refused with its pid", async () => {
    configuration("trainingSteps: 100000, schedule: constant, evaluateEvery: 0");
    const args = ["train", path("run.yaml"), "--run-dir", path("run"), "--json", "--quiet"];
    const child = spawn(process.execPath, [program, ...args]);
    await new Promise((resolve) => child.stdout.once("data", resolve));
    const second = await resume("--run-dir", path("run"));
    expect(second).toMatchObject({ code: 2, out: "" });
    expect(second.err).toContain(`process ${child.pid} on `);
    child.kill("SIGKILL");
    await new Promise((resolve) => child.once("close", resolve));
    const steps = readFileSync(path("run", "metrics.jsonl"), "utf8").split("\n").length + 1;
    const third = await resume("--run-dir", path("run"), "--set", `training.trainingSteps=${steps}`);
    expect(third).toMatchObject({ code: 0 });
    expect(third.err).toBe(
      `${path("run")}: taking over the lock of process ${child.pid} on this host, which has exited\n`,
    );
    expect(readdirSync(path("run")).filter((name) => name.includes("lock"))).toEqual([]);
  });
});

describe("Ctrl-C", () => {
  test("twice stops immediately, even during a computation", async () => {
    // One step of a quarter of a million positions, most of them in calls that give JavaScript no turn.
    configuration("trainingSteps: 1, numEpisodesPerExperience: 2000, evaluateEvery: 0, batchSize: 4000");
    const child = spawn(process.execPath, [program, "train", path("run.yaml"), "--run-dir", path("run")], {
      env: { ...process.env, OMP_NUM_THREADS: "1" },
    });
    let errors = "";
    child.stderr.on("data", (chunk: Buffer) => (errors += chunk.toString()));
    await new Promise((resolve) => child.stderr.once("data", resolve));
    child.kill("SIGINT");
    await new Promise((resolve) => setTimeout(resolve, 400));
    const asked = performance.now();
    child.kill("SIGINT");
    const code = await new Promise((resolve) => child.once("close", resolve));
    expect(code).toBe(130);
    expect(performance.now() - asked).toBeLessThan(1500);
    expect(errors).toContain("Stopped at once.");
  }, 60_000);

  test("in the demo ends after the current step; the run can be resumed", async () => {
    const sets = ["training.trainingSteps=4000", "evaluation.rollouts=2", "training.evaluateEvery=0"];
    const args = ["demo", "--run-dir", path("demo"), ...sets.flatMap((set) => ["--set", set])];
    const child = spawn(process.execPath, [program, ...args]);
    let errors = "";
    await new Promise<void>((resolve) => {
      child.stderr.on("data", (chunk: Buffer) => {
        errors += chunk.toString();
        if (/step [1-9]/u.test(errors)) resolve();
      });
    });
    child.kill("SIGTERM");
    expect(await new Promise((resolve) => child.once("close", resolve))).toBe(1);
    expect(errors).toMatch(/demo: stopped after step \d+ of 4000; resume with astra-rl train .* --resume/u);
    expect(existsSync(path("demo", "checkpoints", "last", "state", "trainer.json"))).toBe(true);
    expect(existsSync(path("demo", "run.lock"))).toBe(false);
  }, 120_000);
});

/**
 * What a command shows in a pseudo-terminal. Each answer is typed when it is asked for, not before: until a program takes the
 * keys over, the terminal itself reads them.
 */
async function inTerminal(
  columns: number,
  command: string,
  answers: readonly string[] = [],
): Promise<string> {
  const set = `stty cols ${columns} rows 24; ${process.execPath} ${program} ${command}`;
  const child = spawn("script", ["-qec", set, "/dev/null"], {
    stdio: ["pipe", "pipe", "inherit"],
    cwd: path(),
    env: { ...process.env, OMP_NUM_THREADS: "1" },
  });
  const left = [...answers];
  let [shown, read] = ["", 0];
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    shown += text;
    const asked = shown.indexOf("Scorer: ", read);
    if (asked === -1 || left.length === 0) return;
    read = asked + 1;
    child.stdin.write(left.shift()!);
  });
  await once(child, "close");
  expect(left).toEqual([]);
  return shown;
}

describe("a terminal", () => {
  const hasScript = spawnSync("script", ["--version"]).status === 0;

  const share = String.raw`\d+\.\d %`;
  test.skipIf(!hasScript).each(variants([80, 160]))(
    "of %d columns (in the night also wide) shows speed, time left, success and reward, each whole on a line",
    async (columns) => {
      configuration("trainingSteps: 4, evaluateEvery: 1");
      const stdout = await inTerminal(columns, "train run.yaml --run-dir run");
      // Erasing is all that is done to lines.
      const lines = stdout
        .split(/[\r\n]+/u)
        .map((line) => line.replaceAll("\u001B[2K", "").replaceAll("\u001B[1A", ""));
      for (const line of lines.filter((each) => /^(?:step \d+\/| {2}\w+ {2})/u.test(each)))
        expect([line, Array.from(line).length < columns]).toEqual([line, true]);
      const shown = (pattern: string) =>
        expect(lines).toContainEqual(expect.stringMatching(new RegExp(pattern, "u")));
      shown("^step 4/4 · \\S+ (s/step|steps/s) · .* in all$");
      shown(`^  success  by harmless probes ${share} [▁▂▃▄▅▆▇█]+ · any ${share}$`);
      shown(`^  dev \\d    by harmless probes ${share} .* · clusters \\d$`);
      shown(`^  probes   .*harmful ${share} · distinct \\d+/\\d+`);
      shown("^  reward   [−\\d]\\S+");
      rmSync(path("run"), { recursive: true });
    },
    60_000,
  );

  test.skipIf(!hasScript)(
    "is asked by init for a scorer until the answer is valid",
    async () => {
      writeFileSync(path("words.json"), '["fool"]');
      const own = `--tester ${goldenFolder} --target ${goldenFolder}`;
      const answers = ["5\n", "keyord:words.json\n", "keyword:words.json\n"];
      const shown = await inTerminal(80, `init run.yaml ${own}`, answers);
      expect(shown).toContain("1  detoxify: ");
      expect(shown).toContain("--scorer 5: must be");
      expect(shown).toContain("Wrote run.yaml. Next: astra-rl train run.yaml");
      expect((await readConfiguration(path("run.yaml"))).scorer).toEqual({
        type: "keyword",
        file: path("words.json"),
      });
      const left = await inTerminal(80, `init later.yaml ${own}`, ["\n"]);
      expect(left).toContain("Wrote later.yaml. Set scorer, then: astra-rl train later.yaml");
      const ended = await inTerminal(80, `init ended.yaml ${own}`, ["\u0004"]);
      expect(ended).toContain("Wrote ended.yaml. Set scorer, then");
    },
    60_000,
  );
});
