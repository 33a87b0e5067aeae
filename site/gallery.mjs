/**
 * The pages of the site's gallery: reports of runs in the embedded worlds, whose texts are harmless. A page that is there already,
 * made by the same version, is kept.
 *
 *   npm run docs:gallery [-- NAME…]
 *
 * Takes about ten minutes of one processor. `npm run docs:site` shows the pages that it finds.
 */
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { GALLERY_FOLDER, ROOT } from "./places.mjs";

const runs = join(GALLERY_FOLDER, "runs");
const run = (name) => join(runs, name);

/** A page that a demo writes. */
const demo = (name, title, text, ...flags) => ({
  name,
  title,
  text,
  commands: [["demo", ...flags, "--run-dir", run(name)]],
  evaluations: ["before", "after"].map((time) => [name, `evaluation-${time}`]),
  page: join(run(name), "report.html"),
});

/**
 * Each page: what the site says of it, the commands that make it (later ones may need the runs of earlier ones), and the
 * evaluations that it compares, as folder and name.
 */
export const GALLERY = [
  demo(
    "toxicity",
    "Toxicity, before and after",
    "A small tester learns, with GRPO, what makes a small target insult it. Curves, before and after, trees, and the attacks found.",
  ),
  demo("chat", "A chat model", "The same through a chat template, with DPO.", "--chat"),
  demo(
    "goals",
    "Goals",
    "A tester that is told what the target is to do, tested on two goals that training never saw. Success by goal.",
    "--goals",
  ),
  demo(
    "agent",
    "An agent with tools",
    "A shop's agent that refunds to an account which a customer names. The harm is in a tool's argument, not in the text.",
    "--agent",
  ),
  {
    name: "harden",
    title: "Hardening",
    text: "The chat model learned from the attacks that were found: the old tester before and after, and a new tester against it.",
    evaluations: ["before", "after", "again"].map((name) => ["harden", name]),
    commands: [
      ["harden", run("chat"), "--output", run("harden")],
      [
        "report",
        ...["before", "after", "again"].map((name) => join(run("harden"), `${name}.json`)),
        "--output",
        join(GALLERY_FOLDER, "harden.html"),
      ],
    ],
  },
  {
    name: "compare",
    title: "Two algorithms compared",
    text: "DPO and GRPO learn the same goals: both runs on one page, and the paired difference between their testers.",
    evaluations: ["goals", "goals-grpo"].map((name) => [name, "evaluation-after"]),
    commands: [
      ["demo", "--goals", "--algorithm", "grpo", "--run-dir", run("goals-grpo")],
      [
        "report",
        ...["goals", "goals-grpo"].flatMap((name) => [run(name), join(run(name), "evaluation-after.json")]),
        "--output",
        join(GALLERY_FOLDER, "compare.html"),
      ],
    ],
  },
];

/** Where the site takes a page from. */
export const galleryPage = (name) => join(GALLERY_FOLDER, `${name}.html`);

/** Success in the evaluations that a report compares, in a line; null where their files are gone. */
export function figuresOf({ evaluations }) {
  const paths = evaluations.map(([folder, name]) => join(run(folder), `${name}.json`));
  if (!paths.every((path) => existsSync(path))) return null;
  const summaries = paths.map((path) => JSON.parse(readFileSync(path, "utf8")).summary);
  const rates = summaries.map(({ success_rate: rate }) => `${(100 * rate).toFixed(1)} %`);
  return `${rates.join(" → ")} of ${summaries[0].n_scored} conversations`;
}

function make({ name, commands, page }) {
  for (const args of commands) {
    // A run that was stopped is made anew.
    const folder = args[args.indexOf("--run-dir") + 1];
    if (args.includes("--run-dir")) rmSync(folder, { recursive: true, force: true });
    const command = [join(ROOT, "packages/astra-rl/bin/astra-rl.js"), ...args, "--quiet"];
    const { status } = spawnSync(process.execPath, command, { cwd: ROOT, stdio: "inherit" });
    if (status !== 0) throw new Error(`gallery: ${name}: astra-rl ${args.join(" ")} ended with ${status}`);
  }
  if (page !== undefined) copyFileSync(page, galleryPage(name));
}

function main(names) {
  const unknown = names.filter((name) => !GALLERY.some((each) => each.name === name));
  if (unknown.length > 0) {
    throw new Error(
      `gallery: no page ${unknown.join(", ")}; there is ${GALLERY.map(({ name }) => name).join(", ")}`,
    );
  }
  mkdirSync(runs, { recursive: true });
  for (const each of GALLERY) {
    if (names.length > 0 ? !names.includes(each.name) : existsSync(galleryPage(each.name))) continue;
    process.stderr.write(`gallery: ${each.name}\n`);
    make(each);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) main(process.argv.slice(2));
