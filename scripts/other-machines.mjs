#!/usr/bin/env node
/**
 * What can be tried here of machines that are not here: the smoke run within each smaller instruction set and as an emulated
 * Haswell (no AVX-512), and the addon's sources compiled for ARM64. Where a tool is missing and may not be installed, a line
 * that begins with SKIPPED says so.
 *
 *   node scripts/other-machines.mjs
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { spawn } from "node:child_process";
import { ISAS } from "../packages/torch/dist/native.js";
import { aptInstall } from "../packages/torch/scripts/setup/apt.mjs";
import { onPath } from "../packages/torch/scripts/setup/command.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const smoke = join(root, "scripts/smoke.mjs");
const require = createRequire(import.meta.url);
const say = (line) => console.log(`other machines: ${line}`);
const skip = (what, why) => console.log(`SKIPPED: ${what}: ${why}`);
let failures = 0;
const fail = (what, output) => {
  failures += 1;
  console.log(`other machines: FAILED: ${what}\n${output.trim()}`);
};

/** @returns {Promise<{ ok: boolean, output: string }>} */
function run(program, parameters, environment = {}) {
  return new Promise((fulfil) => {
    const child = spawn(program, parameters, { cwd: root, env: { ...process.env, ...environment } });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
    child.on("error", (error) => fulfil({ ok: false, output: error.message }));
    child.on("close", (code) => fulfil({ ok: code === 0, output }));
  });
}

/** The program's path, installed where need be; null, with a line that says so, where it cannot be had. */
function obtain(program, debianPackage, what) {
  const found = onPath(program);
  if (found !== null) return found;
  const { ok, why } = aptInstall([debianPackage], say);
  const installed = onPath(program);
  if (installed === null) skip(what, ok ? `${debianPackage} holds no ${program}` : why);
  return installed;
}

async function withinSmallerSets() {
  const { instructionSets } = require(join(root, "packages/torch/build/preload.node"));
  const [inForce] = instructionSets();
  for (const isa of ISAS.slice(0, ISAS.indexOf(inForce))) {
    const { ok, output } = await run(process.execPath, [smoke], { ASTRA_ISA: isa });
    if (ok) say(`smoke run within ${isa}: passed`);
    else fail(`smoke run within ${isa}`, output);
  }
}

async function asHaswell() {
  const what = "smoke run as an emulated Haswell";
  if (process.arch !== "x64") return skip(what, `this is ${process.arch}`);
  const emulator = obtain("qemu-x86_64", "qemu-user", what);
  if (emulator === null) return;
  const started = Date.now();
  // The emulator's threads wait for one another by spinning, and what the user has set for this machine is not for that one.
  const environment = { OMP_NUM_THREADS: "1", ASTRA_ISA: "", OPENBLAS_CORETYPE: "Haswell" };
  const { ok, output } = await run(emulator, ["-cpu", "Haswell", process.execPath, smoke], environment);
  const lines = output.split("\n").filter((line) => !line.startsWith("qemu-x86_64: warning"));
  if (ok && lines.some((line) => line.includes(", avx2"))) {
    say(`${what}: passed in ${((Date.now() - started) / 1000).toFixed(0)} s`);
  } else fail(what, lines.join("\n"));
}

async function forArm() {
  const what = "the addon's sources compiled for ARM64";
  const compiler = obtain("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu", what);
  if (compiler === null) return;
  const sources = join(root, "packages/torch/native");
  const { root: prefix } = JSON.parse(readFileSync(join(root, "packages/torch/build/libtorch.json"), "utf8"));
  const include = join(prefix, "include");
  // This machine's own headers of the C library must come after those of the other one; our declarations of Gloo after both.
  const libtorch = [
    include,
    join(include, "torch/csrc/api/include"),
    join(sources, "gloo-declarations"),
  ].flatMap((path) => ["-idirafter", path]);
  const flags = ["-O1", "-fPIC", "-fopenmp", "-Wall", "-Wextra", "-Wno-unused-parameter", "-DNAPI_VERSION=8"];
  const headers = [
    "-iquote",
    sources,
    "-isystem",
    join(dirname(require.resolve("node-api-headers/package.json")), "include"),
  ];
  const folder = mkdtempSync(join(tmpdir(), "astra-arm-"));
  const queue = readdirSync(sources, { recursive: true, encoding: "utf8" }).filter((name) =>
    /\.(cpp|c)$/.test(name),
  );
  const count = queue.length;
  const before = failures;
  const work = async () => {
    for (let name = queue.shift(); name !== undefined; name = queue.shift()) {
      const language = name.endsWith(".c") ? ["-x", "c"] : ["-x", "c++", "-std=c++17"];
      const files = ["-c", join(sources, name), "-o", join(folder, `${name.replaceAll("/", "-")}.o`)];
      const title = `-DNODE_GYP_MODULE_NAME=${name.endsWith(".c") ? "preload" : "torch"}`;
      const result = await run(compiler, [...language, ...flags, title, ...headers, ...libtorch, ...files]);
      if (!result.ok) fail(`${what}: ${name}`, result.output.split("\n").slice(0, 20).join("\n"));
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(availableParallelism(), count) }, work));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  // There is no libtorch for ARM64 here to link with, nor a machine to run it on.
  if (failures === before) say(`${what}: ${count} files, neither linked nor run`);
}

await withinSmallerSets();
await asHaswell();
await forArm();
process.exitCode = failures === 0 ? 0 : 1;
