import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { UsageError } from "@astra-rl/torch";
import { expect, it } from "vitest";
import { LOCK_FILE, recoverRunFolder, RunDirectory, RunLock } from "../../src/training/index.js";
import { temporaryFolder } from "./temporary-folder.js";

/** A process that is no more, so that its number is nobody's. */
const dead = () => spawnSync(process.execPath, ["-e", ""]).pid;

function lockOf(folder: string, holder: Record<string, unknown>): string {
  const path = join(folder, LOCK_FILE);
  writeFileSync(path, JSON.stringify(holder));
  return path;
}

it("keeps a second process out, by number and host, until it is let go", () => {
  const folder = temporaryFolder();
  const lock = RunLock.take(folder);
  expect(() => RunLock.take(folder)).toThrow(UsageError);
  expect(() => RunLock.take(folder)).toThrow(
    `${folder}: process ${process.pid} on ${hostname()} is using this run; wait for it, or stop it`,
  );
  expect(JSON.parse(readFileSync(join(folder, LOCK_FILE), "utf8"))).toMatchObject({
    pid: process.pid,
    host: hostname(),
  });
  lock.release();
  lock.release();
  expect(readdirSync(folder)).toEqual([]);
  RunLock.take(folder).release();
});

it("is taken over, with a line, from a process of this host that is no more", () => {
  const folder = temporaryFolder();
  const pid = dead();
  lockOf(folder, { pid, host: hostname(), began: null });
  const lines: string[] = [];
  const lock = RunLock.take(folder, { onTakeover: (line) => lines.push(line) });
  expect(lines).toEqual([`${folder}: taking over from process ${pid} on this host, which is no more`]);
  lock.release();
  expect(readdirSync(folder)).toEqual([]);
});

it("is taken over from a process whose number another one has by now", () => {
  const folder = temporaryFolder();
  lockOf(folder, { pid: process.pid, host: hostname(), began: "another boot 17" });
  // Where the system does not tell when processes began, the number alone decides.
  if (!existsSync("/proc/self/stat")) expect(() => RunLock.take(folder)).toThrow(UsageError);
  else expect(() => RunLock.take(folder).release()).not.toThrow();
});

it("of another host is never taken over, but its file is named", () => {
  const folder = temporaryFolder();
  const path = lockOf(folder, { pid: dead(), host: "elsewhere", began: null });
  expect(() => RunLock.take(folder)).toThrow(
    `if it is no more, which cannot be seen from here, delete ${path}`,
  );
  expect(existsSync(path)).toBe(true);
});

it("that cannot be read counts as being made, for ten seconds", () => {
  const folder = temporaryFolder();
  const path = join(folder, LOCK_FILE);
  writeFileSync(path, "{");
  expect(() => RunLock.take(folder)).toThrow("another process is about to use this run");
  const then = new Date(Date.now() - 60_000);
  utimesSync(path, then, then);
  RunLock.take(folder).release();
});

it("is left by a killed process, and let go of by one that ends", async () => {
  const folder = temporaryFolder();
  const source = new URL("../../src/training/run-lock.ts", import.meta.url).href;
  const hold = (then: string) =>
    spawn(process.execPath, [
      "--import",
      "tsx",
      "--input-type=module",
      "-e",
      `import { RunLock } from "${source}"; RunLock.take(${JSON.stringify(folder)}); console.log("held"); ${then}`,
    ]);
  const child = hold("setInterval(() => {}, 1000)");
  await new Promise((resolve) => child.stdout.once("data", resolve));
  expect(() => RunLock.take(folder)).toThrow(`process ${child.pid} on`);
  child.kill("SIGKILL");
  await new Promise((resolve) => child.once("close", resolve));
  RunLock.take(folder).release();
  const orderly = hold("process.exit(0)");
  await new Promise((resolve) => orderly.once("close", resolve));
  expect(readdirSync(folder)).toEqual([]);
}, 60_000);

it("a run directory that is open cannot be opened again", () => {
  const folder = temporaryFolder();
  const first = new RunDirectory(folder);
  first.open({ resume: false });
  expect(() => new RunDirectory(folder).open({ resume: true })).toThrow("is using this run");
  first.close();
  const second = new RunDirectory(folder);
  second.open({ resume: true });
  second.close();
});

it("what killed processes have begun to write is removed, and nothing else", () => {
  const folder = temporaryFolder();
  const checkpoints = join(folder, "checkpoints");
  for (const name of [
    ".last.writing",
    "..last.writing.writing",
    "..best.writing.old",
    "last",
    "best",
    "step-3",
  ]) {
    mkdirSync(join(checkpoints, name, "state"), { recursive: true });
  }
  for (const name of [".probe", ".trainer.json.12-0123abcd.partial", ".keep", "notes.writing"]) {
    writeFileSync(join(checkpoints, name), "");
  }
  writeFileSync(join(folder, ".config.resolved.yaml.77-0123abcd.partial"), "");
  writeFileSync(join(folder, "metrics.jsonl"), "");
  recoverRunFolder(folder);
  expect(readdirSync(checkpoints).sort()).toEqual([".keep", "best", "last", "notes.writing", "step-3"]);
  expect(readdirSync(folder).sort()).toEqual(["checkpoints", "metrics.jsonl"]);
});
