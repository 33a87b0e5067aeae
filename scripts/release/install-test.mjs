#!/usr/bin/env node
/**
 * What a stranger does with the packed packages, on a machine without a compiler: installs them offline and without scripts into
 * an empty project, sets up, asks the doctor, trains a step, serves a model; with npm and with pnpm, and with the Node that is
 * named.
 *
 *   node scripts/release/install-test.mjs [--packages DIR] [--manager npm|pnpm] [--node PATH] [--manager-file PATH]
 *                                         [--archive FILE] [--keep]
 *
 *   --packages   what scripts/release/pack.mjs wrote (default: .cache/release/packages)
 *   --node       a Node to test with, instead of the one that runs this
 *   --manager-file   the JavaScript file of npm or pnpm, instead of the one on the path
 *   --archive    an archive of libtorch to serve to set-up, instead of the official one, which is downloaded
 *   --keep       leave the project where it is, and say where
 *
 * Before it goes offline, the packages of others are put into the package manager's cache (online, unless they are there). The path
 * of every program that is tested holds Node, the package manager and a shell, and nothing else.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  createReadStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { OFFICIAL } from "../../packages/torch/scripts/setup/archive.mjs";
import { onPath } from "../../packages/torch/scripts/setup/command.mjs";
import { PACKED, packedIn, run } from "./shared.mjs";

const { values } = parseArgs({
  options: {
    packages: { type: "string", default: PACKED },
    manager: { type: "string", default: "npm" },
    node: { type: "string", default: process.execPath },
    "manager-file": { type: "string" },
    archive: { type: "string" },
    keep: { type: "boolean", default: false },
  },
});
const { manager } = values;
const started = performance.now();
const seconds = (since) => ((performance.now() - since) / 1000).toFixed(1);
const say = (line) => process.stdout.write(`install: ${seconds(started)} s: ${line}\n`);
/** Programs of which none may be needed. */
const ABSENT = ["g++", "gcc", "cc", "c++", "clang", "make", "cmake", "python3", "python", "apt-get"];

const folder = realpathSync(mkdtempSync(join(tmpdir(), "astra-rl-install-")));
const bin = join(folder, "bin");
const cache = join(folder, "cache");

function check(condition, sentence) {
  if (!condition) throw new Error(sentence);
}

/** A path that holds Node, the package manager and a shell. */
function makePath() {
  mkdirSync(bin);
  symlinkSync(realpathSync(values.node), join(bin, "node"));
  symlinkSync(realpathSync("/bin/sh"), join(bin, "sh"));
  const file = values["manager-file"] ?? onPath(manager);
  check(file !== null, `${manager} is not on the path; name its file with --manager-file`);
  const programs = manager === "npm" ? { npm: "npm-cli.js", npx: "npx-cli.js" } : { pnpm: null };
  for (const [name, script] of Object.entries(programs)) {
    const own = realpathSync(resolve(file));
    const target = script === null ? own : join(own, "..", script);
    const isJavaScript = /\.[cm]?js$/u.test(target) || readFileSync(target).subarray(0, 30).includes("node");
    writeFileSync(join(bin, name), `#!/bin/sh\nexec ${isJavaScript ? "node " : ""}"${target}" "$@"\n`);
    chmodSync(join(bin, name), 0o755);
  }
  for (const name of ABSENT) check(onPath(name, bin) === null, `${name} is on the path`);
}

const environment = {
  HOME: process.env.HOME,
  PATH: bin,
  ASTRA_RL_CACHE: cache,
  OMP_NUM_THREADS: process.env.OMP_NUM_THREADS ?? "1",
  // Where the registry and its certificates are is the user's own setting.
  ...Object.fromEntries(
    Object.entries(process.env).filter(([name]) =>
      /^(npm_config_|NODE_EXTRA_CA_CERTS$|.*_PROXY$)/iu.test(name),
    ),
  ),
};
const options = { env: environment };
const programOf = (name) => join(bin, name);

/** Writes the package.json of a project that has the packed packages as its dependencies. */
function makeProject(name, packages) {
  const project = join(folder, name);
  mkdirSync(project);
  const files = Object.fromEntries(packages.map((each) => [each.name, `file:${each.path}`]));
  const dependencies = manager === "npm" ? {} : { "astra-rl": files["astra-rl"] };
  writeFileSync(
    join(project, "package.json"),
    `${JSON.stringify({ name, private: true, type: "module", dependencies }, null, 2)}\n`,
  );
  // Its dependencies on one another name versions, which no registry has yet.
  if (manager === "pnpm") {
    const lines = Object.entries(files).map(([each, file]) => `  "${each}": "${file}"\n`);
    writeFileSync(join(project, "pnpm-workspace.yaml"), `overrides:\n${lines.join("")}`);
  }
  return project;
}

function install(project, packages, ...more) {
  const args =
    manager === "npm"
      ? [
          "install",
          "--ignore-scripts",
          "--no-audit",
          "--no-fund",
          ...more,
          ...packages.map(({ path }) => path),
        ]
      : ["install", "--ignore-scripts", ...more];
  return run(programOf(manager), args, { ...options, cwd: project });
}

/** Serves an archive of libtorch on this machine. Returns the variables that name it. */
async function serveArchive(file) {
  const digest = createHash("sha256");
  for await (const chunk of createReadStream(file)) digest.update(chunk);
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-length": statSync(file).size });
    createReadStream(file).pipe(response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${server.address().port}/libtorch.zip`;
  return {
    server,
    variables: { ASTRA_RL_LIBTORCH_URL: url, ASTRA_RL_LIBTORCH_SHA256: digest.digest("hex") },
  };
}

/** Runs the command line, without blocking this process, which may serve the archive. */
async function astra(project, ...args) {
  const [program, ...prefix] = manager === "npm" ? ["npx", "--offline"] : ["pnpm", "exec"];
  const child = spawn(programOf(program), [...prefix, "astra-rl", ...args], { ...options, cwd: project });
  let [output, errors] = ["", ""];
  child.stdout.on("data", (data) => (output += data));
  child.stderr.on("data", (data) => (errors += data));
  const [code] = await once(child, "close");
  return { code, output, errors };
}

async function succeed(project, ...args) {
  const { code, output, errors } = await astra(project, ...args);
  check(code === 0, `astra-rl ${args.join(" ")} ended with ${code}\n${output}${errors}`);
  return { output, errors };
}

/** Starts `serve`, asks it for a completion, and stops it. */
async function serve(project) {
  const entry = join(project, "node_modules/astra-rl/bin/astra-rl.js");
  const child = spawn(programOf("node"), [entry, "serve", "--model", "embedded:chatter", "--port", "0"], {
    ...options,
    cwd: project,
  });
  try {
    let errors = "";
    child.stderr.on("data", (data) => (errors += data));
    const first = await Promise.race([once(child.stdout, "data"), once(child, "exit").then(() => null)]);
    check(first !== null, `astra-rl serve ended before it listened\n${errors}`);
    const base = first[0].toString().trim();
    const { data } = await (await fetch(`${base}/models`)).json();
    const response = await fetch(`${base}/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: data[0].id, prompt: "It rained", max_tokens: 4 }),
    });
    const { choices, usage } = await response.json();
    check(response.ok && usage.completion_tokens > 0, `serve answered ${response.status}`);
    return choices[0].text;
  } finally {
    child.kill("SIGINT");
  }
}

async function main() {
  const packages = packedIn(resolve(values.packages));
  makePath();
  const version = run(programOf("node"), ["--version"], options).trim();
  const itsVersion = run(programOf(manager), ["--version"], options).trim();
  say(`Node ${version}, ${manager} ${itsVersion}, path without ${ABSENT.join(", ")}`);
  install(makeProject("primed", packages), packages, "--prefer-offline");
  const project = makeProject("project", packages);
  let since = performance.now();
  install(project, packages, "--offline");
  say(`installed offline, without scripts, in ${seconds(since)} s`);

  const before = await astra(project, "doctor");
  check(
    before.code !== 0 && before.output.includes("astra-rl setup"),
    "doctor, before set-up, names no remedy",
  );

  const archive = values.archive === undefined ? null : await serveArchive(resolve(values.archive));
  Object.assign(environment, archive?.variables);
  since = performance.now();
  const { errors } = await succeed(project, "setup");
  archive?.server.close();
  check(!errors.includes("building"), `set-up built an engine\n${errors}`);
  say(
    `set up, ${archive === null ? "download" : "archive from this machine"} included, in ${seconds(since)} s`,
  );
  since = performance.now();
  await succeed(project, "setup", "--force");
  say(`set up again, libtorch there, in ${seconds(since)} s`);

  since = performance.now();
  const doctor = JSON.parse((await succeed(project, "doctor", "--json")).output);
  check(doctor.engine?.libtorch === OFFICIAL.version, `doctor: ${doctor.engineError}`);
  check(doctor.engine.origin.startsWith(cache), `doctor: libtorch is that of ${doctor.engine.origin}`);
  const { engine } = doctor;
  say(
    `doctor, in ${seconds(since)} s: libtorch ${engine.libtorch}, ${engine.blas}, ${engine.isa}, ${engine.gemm.float32} GFLOP/s`,
  );

  await succeed(project, "init", "run.yaml");
  since = performance.now();
  const settings = ["training.trainingSteps=1", "training.evaluateEvery=0"].flatMap((each) => [
    "--set",
    each,
  ]);
  await succeed(project, "train", "run.yaml", "--run-dir", "run", "--quiet", ...settings);
  const [line] = readFileSync(join(project, "run/metrics.jsonl"), "utf8").trim().split("\n");
  check(JSON.parse(line).step === 1, "train left no first step");
  say(`trained a step of the embedded world in ${seconds(since)} s`);
  since = performance.now();
  const text = await serve(project);
  say(`served a completion (${JSON.stringify(text)}) in ${seconds(since)} s`);
  const built = join(realpathSync(join(project, "node_modules/astra-rl")), "..", "@astra-rl/torch/build");
  check(!existsSync(join(built, "astra_torch.node")), "an engine was built");
  say("passed");
}

try {
  await main();
} catch (error) {
  process.stderr.write(`install: ${error.message}\n`);
  process.exitCode = 1;
} finally {
  if (values.keep) say(`left in ${folder}`);
  else rmSync(folder, { recursive: true, force: true });
}
