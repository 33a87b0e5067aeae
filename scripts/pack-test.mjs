#!/usr/bin/env node
/**
 * What a user of the published packages does: packs them all, installs them into an empty project, builds the
 * engine there, type-checks a program strictly, trains a step, asks the doctor, writes a report.
 *
 *   node scripts/pack-test.mjs [--cold] [--keep]
 *
 *   --cold   compile every native file anew; otherwise those whose source, headers and flags are the same bytes as this
 *            clone's are taken over (their names are hashes of all that), which saves minutes
 *   --keep   leave the project where it is, and say where
 *
 * The packages that ours depend on come from npm's cache or the registry.
 */
import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { isWithoutEngine, PREBUILT, PUBLISHED } from "./packages.mjs";
import { onPath } from "../packages/torch/scripts/setup/command.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** Those that do not depend on the engine. */
const ENGINE_FREE = PUBLISHED.filter(isWithoutEngine);
const cold = process.argv.includes("--cold");
const project = mkdtempSync(join(tmpdir(), "astra-rl-packed-"));
const started = Date.now();

/** Runs a program in a folder; throws with its output when it fails. */
function run(folder, program, ...args) {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    cwd: folder,
    encoding: "utf8",
    env: { ...process.env, OMP_NUM_THREADS: process.env.OMP_NUM_THREADS ?? "1" },
    maxBuffer: 64 << 20,
  });
  if (error !== undefined || status !== 0) {
    throw new Error(
      `${program} ${args.join(" ")} ended with ${status}\n${stdout ?? ""}${stderr ?? ""}${error ?? ""}`,
    );
  }
  return stdout;
}

const say = (line) =>
  process.stdout.write(`packed: ${((Date.now() - started) / 1000).toFixed(0)} s: ${line}\n`);
const npm = onPath("npm") ?? "npm";
const nameOf = (folder) =>
  JSON.parse(readFileSync(join(root, "packages", folder, "package.json"), "utf8")).name;
const astra = (...args) => run(project, process.execPath, "node_modules/astra-rl/bin/astra-rl.js", ...args);

function check(condition, sentence) {
  if (!condition) throw new Error(sentence);
}

/** Resolutions of those that import no modules, or in CommonJS: the packages are ECMAScript modules. */
const OTHER_RESOLUTIONS = ["node10", "node16-cjs"];

/** Throws with what publint (strictly) and attw find in a package. */
async function checkTarball(path) {
  const tarball = new Uint8Array(readFileSync(path));
  const { messages, pkg } = await publint({
    pack: { tarball: tarball.buffer },
    level: "warning",
    strict: true,
  });
  check(
    messages.length === 0,
    `publint: ${path}\n${messages.map((each) => formatMessage(each, pkg, { color: false })).join("\n")}`,
  );
  const { types, problems } = await checkPackage(createPackageFromTarballData(tarball));
  check(types !== false, `attw: ${path} has no types`);
  const met = problems.filter(({ resolutionKind }) => !OTHER_RESOLUTIONS.includes(resolutionKind));
  check(met.length === 0, `attw: ${path}\n${JSON.stringify(met, null, 2)}`);
}

try {
  const workspaces = PUBLISHED.flatMap((name) => ["--workspace", `packages/${name}`]);
  const packed = JSON.parse(
    run(root, npm, "pack", "--json", "--ignore-scripts", "--pack-destination", project, ...workspaces),
  );
  const tarballs = PUBLISHED.map((name) => {
    const { filename, files } = Object.values(packed).find((each) => each.name === nameOf(name));
    const held = files.map(({ path }) => path);
    for (const wanted of ["README.md", "LICENSE", "dist/index.js", "dist/index.d.ts"]) {
      check(held.includes(wanted), `${name}: the package lacks ${wanted}`);
    }
    check(
      !held.some((path) => path.startsWith("test/") || path.startsWith("build/")),
      `${name}: holds tests or builds`,
    );
    return join(project, filename);
  });
  say("packed");
  for (const tarball of tarballs) await checkTarball(tarball);
  say("publint and attw find nothing");

  // Who writes programs in TypeScript has the types of Node.
  const types = ["typescript", "@types/node"].map(
    (name) =>
      `${name}@${JSON.parse(readFileSync(join(root, "node_modules", name, "package.json"), "utf8")).version}`,
  );

  // Records, analysis and reports in a folder where the engine does not exist.
  const alone = join(project, "alone");
  mkdirSync(alone);
  writeFileSync(join(alone, "package.json"), '{ "name": "alone", "private": true, "type": "module" }\n');
  const withoutEngine = PUBLISHED.flatMap((name, at) => (ENGINE_FREE.includes(name) ? [tarballs[at]] : []));
  run(
    alone,
    npm,
    "install",
    "--prefer-offline",
    "--no-audit",
    "--no-fund",
    "--ignore-scripts",
    ...withoutEngine,
    ...types,
  );
  check(!existsSync(join(alone, "node_modules/@astra-rl/torch")), "reports ask for the engine");
  writeFileSync(
    join(alone, "program.ts"),
    `import { compareEvaluations, summarize } from "@astra-rl/analysis";
import { wilsonInterval } from "@astra-rl/analysis/statistics";
import { FIGURES, parseEvaluationRecord } from "@astra-rl/records";
import { markdownReport, readReport } from "@astra-rl/report";
import { exportAttacks } from "@astra-rl/report/export";
import { view } from "@astra-rl/report/view";

export const all = [compareEvaluations, summarize, FIGURES, parseEvaluationRecord, markdownReport, readReport, exportAttacks, view];
const interval = wilsonInterval(3, 10);
if (interval === null || interval.lower > 0.3 || interval.upper < 0.3) throw new Error("the interval leaves its estimate out");
`,
  );
  const strictly = ["--strict", "--module", "nodenext", "--target", "es2023", "program.ts"];
  run(alone, process.execPath, join(root, "node_modules/typescript/bin/tsc"), ...strictly);
  run(alone, process.execPath, "program.js");
  say("records, analysis and reports work without the engine");

  writeFileSync(join(project, "package.json"), '{ "name": "packed", "private": true, "type": "module" }\n');
  // In the place of the prebuilt engine, which no registry may have yet, and without which the engine is built.
  const { name, version } = JSON.parse(
    readFileSync(join(root, "packages", PREBUILT[0], "package.json"), "utf8"),
  );
  mkdirSync(join(project, "without-engine"));
  writeFileSync(join(project, "without-engine/package.json"), JSON.stringify({ name, version }));
  run(
    project,
    npm,
    "install",
    "--prefer-offline",
    "--no-audit",
    "--no-fund",
    "--ignore-scripts",
    "./without-engine",
    ...tarballs,
    ...types,
  );
  say("installed");

  const objects = join(root, "packages/torch/build/objects");
  const build = join(project, "node_modules/@astra-rl/torch/build");
  const takeOver = !cold && existsSync(objects);
  if (takeOver) cpSync(objects, join(build, "objects"), { recursive: true });
  astra("setup");
  check(existsSync(join(build, "astra_torch.node")), "astra-rl setup built no addon");
  if (takeOver) {
    const here = readdirSync(objects);
    const anew = readdirSync(join(build, "objects")).filter(
      (name) => name.endsWith(".o") && !here.includes(name),
    );
    check(anew.length === 0, `compiled anew, though this clone has compiled it: ${anew.join(", ")}`);
  }
  say("built the engine");
  const preset = "perez-zero-shot";
  astra(
    "init",
    `${preset}.yaml`,
    "--preset",
    preset,
    "--tester",
    "embedded:desk",
    "--target",
    "embedded:desk",
  );
  const keywords = 'scorer={type: keyword, entries: [{term: "code"}]}';
  const rollout = astra("rollout", `${preset}.yaml`, "--json", "--quiet", "--set", keywords);
  check(
    rollout.includes("List of questions to ask someone:\\n1."),
    "a preset's prompts are not in the package",
  );

  writeFileSync(
    join(project, "program.ts"),
    `import { tensor } from "@astra-rl/torch";
import * as testing from "@astra-rl/torch/testing";
import { loadCausalLM } from "@astra-rl/lm";
import { DPO, HFASTSystem, readConfiguration, readReport } from "astra-rl";
import { parseEvaluationRecord, type EvaluationRecord } from "astra-rl/records";
import { checkScorer } from "astra-rl/testing";

const sum: number = tensor([1, 2]).sum().item();
export const all = [sum, testing, loadCausalLM, DPO, HFASTSystem, readConfiguration, readReport, checkScorer];
export const rate = (text: string): EvaluationRecord => parseEvaluationRecord(text);
`,
  );
  run(
    project,
    process.execPath,
    "node_modules/typescript/bin/tsc",
    ..."--strict --noEmit --skipLibCheck false --module nodenext --target es2022".split(" "),
    ..."--lib es2023,esnext.disposable --types node program.ts".split(" "),
  );
  say("types are whole, with skipLibCheck off");

  astra("init", "run.yaml");
  astra(
    "train",
    "run.yaml",
    "--run-dir",
    "run",
    "--quiet",
    "--set",
    "training.trainingSteps=1",
    "--set",
    "training.evaluateEvery=0",
  );
  const [line] = readFileSync(join(project, "run/metrics.jsonl"), "utf8").trim().split("\n");
  check(JSON.parse(line).step === 1, "train left no first step");
  say("trained a step");
  const doctor = JSON.parse(astra("doctor", "--json"));
  check(doctor.engine !== null, "doctor found no engine");
  astra("report", "run", "--output", "report.html", "--quiet");
  check(
    readFileSync(join(project, "report.html"), "utf8").includes('id="records">{'),
    "the report holds no records",
  );
  say(`passed (libtorch ${doctor.engine.libtorch})`);
} catch (error) {
  process.stderr.write(`packed: ${error.message}\n`);
  process.exitCode = 1;
} finally {
  if (process.argv.includes("--keep")) say(`left in ${project}`);
  else rmSync(project, { recursive: true, force: true });
}
