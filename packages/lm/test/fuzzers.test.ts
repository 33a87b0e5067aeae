import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { rounds } from "../../../scripts/rounds.js";

/** Short runs, longer in the night; the long ones are described in docs/fuzzing.md. */
describe("fuzzers", () => {
  it.each([
    ["configurations", rounds(15, 60)],
    ["checkpoints", rounds(15, 60)],
    ["templates", rounds(40, 150)],
    ["hub-listings", rounds(4, 20)],
  ])(
    "%s finds nothing in %d cases",
    (name, cases) => {
      const script = fileURLToPath(new URL(`../fuzz/${name}.ts`, import.meta.url));
      const given = ["--import", "tsx", script, "--cases", String(cases), "--seed", "1"];
      const { status, stdout, stderr } = spawnSync(process.execPath, given, { encoding: "utf8" });
      expect(stdout + stderr).toMatch(new RegExp(`: ${cases} cases from seed 1, 0 failures, \\d+ s\\n$`));
      expect(status).toBe(0);
    },
    300_000,
  );

  it("a failing fuzzer names the case, and exits with status 1", () => {
    const script = fileURLToPath(new URL("support/failing-fuzzer.ts", import.meta.url));
    const given = ["--import", "tsx", script, "--cases", "6", "--seed", "1"];
    const { status, stdout } = spawnSync(process.execPath, given, { encoding: "utf8" });
    expect(status).toBe(1);
    expect(stdout).toMatch(/seed 2: raw error: TypeError: raw/);
    expect(stdout).toMatch(/seed 3: does not name the place: nowhere/);
    expect(stdout).toMatch(/seed 4: the process exited \(7\)/);
    expect(stdout).toMatch(/seed 5: internal error: .*internal: here/);
    expect(stdout).toMatch(/failing: 6 cases from seed 1, 4 failures/);
  }, 300_000);
});
