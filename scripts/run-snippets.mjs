#!/usr/bin/env node
/**
 * Runs the examples of README.md and docs/**.md, so that what they promise stays true.
 *
 *   node scripts/run-snippets.mjs [file.md ...]
 *
 * A fenced block with the word `run` after its language is executed: "```bash run" by bash, "```ts run" by tsx; one that takes
 * minutes, "```bash run night", with ASTRA_NIGHT=1 only (npm run nightly).
 * The blocks of one document run in order, in one fresh folder below .cache/snippets, so that a later block can use
 * the files of an earlier one. A block fails when its process does not end with status 0.
 */
import { mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { executeBeside } from "../packages/torch/scripts/setup/command.mjs";

/** What `tsx FILE` starts, without a process in between. */
const TSX = import.meta.resolve("tsx");

/**
 * The runnable blocks of one document.
 *
 * @param {string} markdown
 * @returns {{ language: "bash" | "ts", code: string, line: number, isOfNight: boolean }[]} `line`: of the opening fence, from 1
 */
export function runnableBlocks(markdown) {
  const blocks = [];
  let open = null;
  markdown.split("\n").forEach((text, index) => {
    if (open === null) {
      const fence = /^```(\w+)((?: +\w+)*)\s*$/.exec(text);
      if (fence !== null)
        open = { language: fence[1], words: fence[2].trim().split(/ +/), line: index + 1, lines: [] };
      else if (text.startsWith("```")) open = { language: "", words: [], line: index + 1, lines: [] };
    } else if (/^```\s*$/.test(text)) {
      if (open.words.includes("run")) {
        if (open.language !== "bash" && open.language !== "ts") {
          throw new Error(`line ${open.line}: only bash and ts blocks can be run, not "${open.language}"`);
        }
        blocks.push({
          language: open.language,
          code: `${open.lines.join("\n")}\n`,
          line: open.line,
          isOfNight: open.words.includes("night"),
        });
      }
      open = null;
    } else {
      open.lines.push(text);
    }
  });
  return blocks;
}

const isNight = process.env.ASTRA_NIGHT === "1";
/** The blocks of a document that run now. */
const blocksOf = (document) =>
  runnableBlocks(readFileSync(document, "utf8")).filter(({ isOfNight }) => isNight || !isOfNight);

function markdownFiles(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) return markdownFiles(path);
    return name.endsWith(".md") ? [path] : [];
  });
}

/** How much a document computes, roughly: how often its blocks name a command that runs models, and how many blocks there are. */
function work(document) {
  const blocks = blocksOf(document);
  const commands = blocks.flatMap(
    ({ code }) => code.match(/astra-rl (demo|train|search|eval|sweep)\b/gu) ?? [],
  );
  return 4 * commands.length + blocks.length;
}

/** Runs the blocks of one document, in order; the lines to print, and whether all of them ran. */
async function runDocument(root, document) {
  const blocks = blocksOf(document);
  if (blocks.length === 0) return { lines: [], ok: true };
  const lines = [];
  const folder = join(root, ".cache/snippets", basename(document, ".md"));
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  // What bash reads before a script: npx would start another Node to find the same program.
  const beforeScripts = join(folder, ".npx.sh");
  writeFileSync(beforeScripts, `npx() { "${join(root, "node_modules/.bin")}/$1" "\${@:2}"; }\n`);
  const env = { BASH_ENV: beforeScripts };
  for (const { language, code, line } of blocks) {
    const place = `${relative(root, document)}:${line}`;
    const file = join(folder, `snippet-${line}.${language === "ts" ? "ts" : "sh"}`);
    writeFileSync(file, code);
    const [program, args] =
      language === "ts" ? [process.execPath, ["--import", TSX, file]] : ["bash", ["-euo", "pipefail", file]];
    const began = performance.now();
    const result = await executeBeside(program, args, { cwd: folder, env });
    if (!result.ok) return { lines: [...lines, `${place}: the example failed`, result.output], ok: false };
    lines.push(`${place}: ran (${((performance.now() - began) / 1000).toFixed(1)} s)`);
  }
  return { lines, ok: true };
}

async function main() {
  const root = dirname(dirname(fileURLToPath(import.meta.url)));
  const named = process.argv.slice(2).map((path) => resolve(path));
  const documents =
    named.length > 0 ? named : [join(root, "README.md"), ...markdownFiles(join(root, "docs"))];
  let count = 0;
  // Documents share no files, so as many run at once as there are processors; those that train and search most first, so that
  // no processor waits for them at the end.
  const waiting = documents.sort((one, other) => work(other) - work(one));
  const runWaiting = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const { lines, ok } = await runDocument(root, next);
      for (const line of lines) (ok ? process.stdout : process.stderr).write(`${line}\n`);
      count += lines.length;
      if (!ok) process.exitCode = 1;
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, runWaiting));
  if (process.exitCode === undefined) process.stdout.write(`examples: ${count} ran\n`);
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) await main();
