import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach } from "vitest";
import { main } from "../../src/main.js";
import { captured } from "./captured.js";

export interface Result {
  code: number;
  out: string;
  err: string;
  /** The lines of standard output as JSON. */
  json: <T>() => T[];
}

/** Runs one command line in this process. */
export async function runCommand(...args: string[]): Promise<Result> {
  const { streams, out, err } = captured();
  const code = await main(args, streams);
  const parse = <T>() =>
    out()
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as T);
  return { code, out: out(), err: err(), json: parse };
}

/** A folder for each test, removed after it. */
export function temporaryFolder(): { path: (...parts: string[]) => string } {
  let folder = "";
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "astra-rl-cli-"));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));
  return { path: (...parts) => join(folder, ...parts) };
}
