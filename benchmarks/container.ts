/**
 * Memory in a container: does a process that exceeds its control group get an error, or is it killed?
 *
 *     npm run bench:container -- [--limit 3] [--output FILE.md]
 *
 * Creates a control group with this limit in GiB (version 1 or 2; needs root and a writable /sys/fs/cgroup), creates
 * tensors of several sizes in it until an error, and removes it. Exit code 1 if a process was killed, 2 if no group can
 * be created.
 */
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { makeControlGroup } from "../packages/torch/test/control-group.js";

const { values } = parseArgs({
  options: { limit: { type: "string", default: "3" }, output: { type: "string" } },
});

const MIB = 2 ** 20;
const torch = JSON.stringify(fileURLToPath(new URL("../packages/torch/dist/index.js", import.meta.url)));
/** Number of float32 elements, and the code that creates tensors until an error. */
const cases: [name: string, elements: number, make: string][] = [
  ["tensors of 10 KiB", 2560, "ones"],
  ["tensors of 200 KiB", 51_200, "ones"],
  ["tensors of 1 MiB", MIB / 4, "ones"],
  ["tensors of 60 MiB", 15 * MIB, "ones"],
  ["tensors of 400 MiB", 100 * MIB, "ones"],
  ["one tensor of 4 GiB", 1024 * MIB, "ones"],
  ["tensors of 60 MiB, written to when all are made", 15 * MIB, "empty"],
];

const bytes = Number(values.limit) * 2 ** 30;
const group = makeControlGroup(bytes);
if (typeof group === "string") {
  console.error(`container: ${group}`);
  process.exit(2);
}

const lines = [
  `A control group of ${values.limit} GiB.`,
  "",
  "| made until there was an error | how it ended | made | seconds |",
  "| --- | --- | --- | --- |",
];
let killed = false;
try {
  for (const [name, elements, make] of cases) {
    const code = `
      const torch = await import(${torch});
      const kept = [];
      const started = performance.now();
      try { for (;;) kept.push(torch.${make}([${elements}])); } catch (error) {
        for (const each of kept) each.fill_(1);
        console.log(JSON.stringify([kept.length, (performance.now() - started) / 1000, error.name + ": " + error.message]));
      }`;
    const { output, signal } = group.run(process.execPath, ["--input-type=module", "-e", code]);
    const last = output.trim().split("\n").at(-1) ?? "";
    if (signal !== null || !last.startsWith("[")) {
      killed = true;
      lines.push(`| ${name} | **${signal ?? last.slice(0, 100)}** | – | – |`);
      continue;
    }
    const [made, seconds, message] = JSON.parse(last) as [number, number, string];
    const text = message.replace(/control group \S+/u, "control group …").replace(/ \(given .*/u, "");
    const together = ((made * elements * 4) / MIB).toFixed(0);
    lines.push(`| ${name} | ${text} | ${made} (${together} MiB) | ${seconds.toFixed(1)} |`);
  }
} finally {
  group.remove();
}
const report = `${lines.join("\n")}\n`;
console.log(report);
if (values.output !== undefined) writeFileSync(values.output, report);
process.exitCode = killed ? 1 : 0;
