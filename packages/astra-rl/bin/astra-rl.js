#!/usr/bin/env node
import { existsSync } from "node:fs";

/** What keeps the program from being read, in words; null for what is a fault of ours. */
function surroundings({ code, name, message }) {
  if (code === "EMFILE")
    return "this process may open too few files to start; raise the limit (ulimit -n 1024)";
  if (code === "ENFILE") return "the system has too many files open";
  if (name === "RangeError" && /memory/iu.test(message)) {
    return "the limit of address space is too low to start; raise it (ulimit -v)";
  }
  return null;
}

const main = new URL("../dist/cli/main.js", import.meta.url);
if (existsSync(main)) {
  try {
    const { main: run } = await import(main.href);
    process.exitCode = await run(process.argv.slice(2));
  } catch (error) {
    const words = surroundings(error);
    if (words === null) throw error;
    process.stderr.write(`astra-rl: ${words}\n`);
    process.exitCode = 2;
  }
} else {
  process.stderr.write("astra-rl: the TypeScript is not built yet; run: npm run setup\n");
  process.exitCode = 1;
}
