import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it, onTestFinished } from "vitest";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

const PROGRAM = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));

it.each(["SIGINT", "SIGTERM"] as const)("serves a folder until %s, and stops cleanly", async (signal) => {
  const child = spawn(process.execPath, [PROGRAM, "view", temporaryFolder(), "--port", "0"]);
  onTestFinished(() => void child.kill("SIGKILL"));
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const list = await fetch(`${line.toString().trim()}/api/list`);
  expect(await list.json()).toMatchObject({ runs: [], evaluations: [] });
  child.kill(signal);
  expect((await once(child, "exit"))[0]).toBe(0);
});

it("reports what it cannot show", async () => {
  const folder = temporaryFolder();
  const file = join(folder, "file");
  writeFileSync(file, "");
  for (const path of [join(folder, "nothing"), file]) {
    const { code, err } = await runCommand("view", path, "--port", "0");
    expect([code, err]).toEqual([
      2,
      `astra-rl: ${path}: there is no such folder; give one that contains run folders\n`,
    ]);
  }
});
