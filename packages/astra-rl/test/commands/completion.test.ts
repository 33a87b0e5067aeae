import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { runCommand } from "../support/run-command.js";

/** The words that bash completes after a command line. */
async function offered(...words: string[]): Promise<string[]> {
  const { out } = await runCommand("completion", "bash");
  const script = `${out}\nCOMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}
_astra_rl; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = spawnSync("bash", ["-c", script], { encoding: "utf8" });
  expect(stderr).toBe("");
  return stdout.split("\n").filter((word) => word !== "");
}

test("bash completes commands, options and the choices of an option", async () => {
  expect(await offered("astra-rl", "ro")).toEqual(["rollout"]);
  expect(await offered("astra-rl", "eval", "--s")).toEqual(["--split", "--set"]);
  expect(await offered("astra-rl", "eval", "--split", "d")).toContain("dev");
  expect(await offered("astra-rl", "demo", "--algorithm", "dp")).toEqual(["dpo"]);
});

test.each(["zsh", "fish"])("%s has every command and option of the help", async (shell) => {
  const { out, code } = await runCommand("completion", shell);
  expect(code).toBe(0);
  const help = (await runCommand("train", "--help")).out;
  for (const [, option] of help.matchAll(/^ {2}--([a-z-]+)/gmu)) {
    if (option !== "help" || shell === "zsh") expect(out).toContain(option);
  }
  for (const command of ["demo", "score", "doctor"]) expect(out).toContain(command);
});

test("another shell is refused", async () => {
  const { code, err } = await runCommand("completion", "tcsh");
  expect(err).toMatch(/Allowed choices are bash, zsh, fish/u);
  expect(code).toBe(2);
});
