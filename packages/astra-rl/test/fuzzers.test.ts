import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

/** Short runs; long ones are described in docs/fuzzing.md. */
const run = (name: string, ...args: string[]) => {
  const script = fileURLToPath(new URL(`../fuzz/${name}.ts`, import.meta.url));
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--import", "tsx", script, ...args], {
    encoding: "utf8",
  });
  return { status, output: stdout + stderr };
};

test("generated command lines terminate, with documented exit codes", () => {
  const { status, output } = run("command-line", "--cases", "6", "--seed", "100");
  expect(output).toMatch(/command-line: 20 × 6 cases, 0 failures, \d+ s\n$/u);
  expect(status).toBe(0);
}, 300_000);

test("generated configurations, folders, scorers and locks are accepted, or refused with a message and in time", () => {
  const { status, output } = run("hostile-input", "--cases", "25", "--seed", "100");
  expect(output).toMatch(/hostile-input: 4 × 25 cases, 0 failures, \d+ s\n$/u);
  expect(status).toBe(0);
}, 300_000);

test("renaming run folders and competing for a lock neither loses nor mixes data", () => {
  const { status, output } = run("run-folders", "--renames", "4", "--races", "6", "--seed", "100");
  expect(output).toMatch(/races: 6 with 4 contenders.*, 0 problems\n/u);
  expect(output).toMatch(/renames: 4, \d+ of them while the run was using the folder, 0 problems\n/u);
  expect(status).toBe(0);
}, 300_000);

test.each(["SIGKILL", "SIGINT", "SIGTERM"])(
  "runs ended by %s and resumed write what an uninterrupted run writes",
  (signal) => {
    const { status, output } = run("interruptions", "--signal", signal, "--times", "3", "--steps", "20");
    expect(output).toMatch(
      new RegExp(`interruptions: \\d+ × ${signal} in \\d+ runs of 20 steps, .*, 0 problems\n$`, "u"),
    );
    expect(status).toBe(0);
  },
  300_000,
);
