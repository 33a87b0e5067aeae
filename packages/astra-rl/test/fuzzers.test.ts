import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { rounds, variants } from "../../../scripts/rounds.js";

/** Short runs, longer in the night; the long ones are described in docs/fuzzing.md. */
const run = (name: string, ...args: string[]) => {
  const script = fileURLToPath(new URL(`../fuzz/${name}.ts`, import.meta.url));
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--import", "tsx", script, ...args], {
    encoding: "utf8",
  });
  return { status, output: stdout + stderr };
};

test("generated command lines terminate, with documented exit codes", () => {
  const cases = rounds(1, 6);
  const { status, output } = run("command-line", "--cases", `${cases}`, "--seed", "100");
  expect(output).toMatch(new RegExp(`command-line: 20 × ${cases} cases, 0 failures, \\d+ s\n$`, "u"));
  expect(status).toBe(0);
}, 300_000);

test("generated configurations, folders, scorers and locks are accepted, or refused with a message and in time", () => {
  const cases = rounds(2, 25);
  const { status, output } = run("hostile-input", "--cases", `${cases}`, "--seed", "100");
  expect(output).toMatch(new RegExp(`hostile-input: 4 × ${cases} cases, 0 failures, \\d+ s\n$`, "u"));
  expect(status).toBe(0);
}, 300_000);

test("renaming run folders and competing for a lock neither loses nor mixes data", () => {
  const [moves, races] = [rounds(1, 4), rounds(1, 6)];
  const { status, output } = run(
    "run-folders",
    "--renames",
    `${moves}`,
    "--races",
    `${races}`,
    "--seed",
    "100",
  );
  expect(output).toMatch(new RegExp(`races: ${races} with 4 contenders.*, 0 problems\n`, "u"));
  expect(output).toMatch(
    new RegExp(`renames: ${moves}, \\d+ of them while the run was using the folder, 0 problems\n`, "u"),
  );
  expect(status).toBe(0);
}, 300_000);

test.each(variants(["SIGKILL", "SIGINT", "SIGTERM"]))(
  "runs ended by %s (in the night by each signal) and resumed write what an uninterrupted run writes",
  (signal) => {
    const [times, steps] = [rounds(2, 3), rounds(8, 20)];
    const { status, output } = run(
      "interruptions",
      "--signal",
      signal,
      "--times",
      `${times}`,
      "--steps",
      `${steps}`,
    );
    expect(output).toMatch(
      new RegExp(`interruptions: \\d+ × ${signal} in \\d+ runs of ${steps} steps, .*, 0 problems\n$`, "u"),
    );
    expect(status).toBe(0);
  },
  300_000,
);
