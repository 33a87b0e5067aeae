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

const main = new URL("../dist/main.js", import.meta.url);
if (existsSync(main)) {
  try {
    const { main: run } = await import(main.href);
    let isWaiting = true;
    process.on("exit", () => {
      // Node ends, with a code of its own, where nothing is left to be done and somebody is waited for all the same.
      if (!isWaiting || process.exitCode !== 13) return;
      process.stderr.write(
        "astra-rl: what it waited for can no longer come: a promise of a module never settles\n",
      );
      process.exitCode = 1;
    });
    process.exitCode = await run(process.argv.slice(2));
    isWaiting = false;
    // What is waited for no longer, such as the answer of a server, must not keep the process.
    setTimeout(() => process.exit(), 500).unref();
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
