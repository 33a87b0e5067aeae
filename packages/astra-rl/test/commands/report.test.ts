import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();

function run(): string {
  mkdirSync(path("run"));
  writeFileSync(path("run", "config.resolved.yaml"), "seed: 3\n");
  writeFileSync(path("run", "metrics.jsonl"), '{"step":1,"loss":0.5,"reward/mean":0.1,"version":1}\n');
  return path("run");
}

test("astra-rl report writes a page to the given path, and creates folders", async () => {
  const file = path("deep", "report.html");
  const { code, out, err } = await runCommand("report", run(), "--output", file);
  expect({ code, out, err }).toEqual({ code: 0, out: "", err: `Wrote ${file}\n` });
  expect(readFileSync(file, "utf8")).toContain('id="records">{"runs":[{"label":"run"');
});

test("--format json, csv and markdown go to standard output", async () => {
  const folder = run();
  const json = await runCommand("report", folder, "--format", "json");
  expect(JSON.parse(json.out)).toMatchObject({ runs: [{ label: "run" }], version: 3 });
  expect((await runCommand("report", folder, "--format", "csv", "--table", "steps")).out).toBe(
    "run,step,loss,reward/mean\r\nrun,1,0.5,0.1\r\n",
  );
  expect((await runCommand("report", folder, "--format", "markdown")).out).toContain("## Run run");
});

test("only regular files are overwritten", async () => {
  symlinkSync("/dev/null", path("link"));
  mkdirSync(path("folder"));
  for (const target of ["/dev/null", path("link"), path("folder")]) {
    const { code, err } = await runCommand("report", run0(), "--output", target);
    expect(code).toBe(2);
    expect(err).toContain(`${target}: `);
    expect(err).toMatch(/cannot be written: (?:it is a device|there is a folder of that name)/u);
  }
});

const run0 = () => (existsSync(path("run")) ? path("run") : run());

test("errors end with a sentence and code 2", async () => {
  for (const args of [["/nowhere"], [run0(), "--format", "pdf"], [run0(), "--graphs", "0"], []]) {
    const { code, err } = await runCommand("report", ...args);
    expect([args, code]).toEqual([args, 2]);
    expect(err).not.toContain("    at ");
  }
});
