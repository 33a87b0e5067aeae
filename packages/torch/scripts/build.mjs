#!/usr/bin/env node
// Builds the native addon against one libtorch, with g++ and nothing else: no CMake, make, Python or download.
//
//   node packages/torch/scripts/build.mjs [--libtorch PREFIX] [--output DIR] [--force] [--quiet]
//
// PREFIX is a folder with include/ and lib/ (the official archive, or the `torch` package of a Python), or /usr for
// Debian's libtorch-dev. Without it: what set-up wrote to build/libtorch.json, $LIBTORCH, /usr. Nothing is rebuilt while sources and library are the same.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism, freemem } from "node:os";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { cudaGraphFlags } from "./cuda-graphs.mjs";

const packageFolder = resolve(dirname(fileURLToPath(import.meta.url)), "..");
/** A clone has functions for tests as well, which no published package has. */
const sourceFolders = ["native", "test/native"]
  .map((folder) => join(packageFolder, folder))
  .filter((folder) => existsSync(folder));

class BuildError extends Error {}

/** The libtorch that set-up chose, or undefined where set-up has not run. */
function recordedLibtorch() {
  try {
    return JSON.parse(readFileSync(join(packageFolder, "build", "libtorch.json"), "utf8")).root;
  } catch {
    return undefined;
  }
}

/** Folders of a libtorch's headers and libraries. */
function layoutOf(prefix) {
  const isSystem = prefix === "/usr" || prefix === "/usr/local" || prefix === "/";
  const libraryFolders = [join(prefix, "lib"), join(prefix, "lib64")];
  const machine = {
    x64: "x86_64",
    arm64: "aarch64",
    ppc64: "powerpc64le",
    riscv64: "riscv64",
    s390x: "s390x",
  }[process.arch];
  if (machine !== undefined) libraryFolders.unshift(join(prefix, "lib", `${machine}-linux-gnu`));
  const libraryFolder = libraryFolders.find((folder) => existsSync(join(folder, "libtorch_cpu.so")));
  const include = join(prefix, "include");
  if (libraryFolder === undefined || !existsSync(join(include, "ATen", "core", "Tensor.h"))) {
    throw new BuildError(
      `${prefix} holds no libtorch with headers (looked for include/ATen/core/Tensor.h and libtorch_cpu.so in ${libraryFolders.join(", ")})`,
    );
  }
  const includeFolders = [include, join(include, "torch", "csrc", "api", "include")]
    // The compiler searches /usr/include by itself; naming it would put it before the C++ library's headers.
    .filter((folder) => existsSync(folder) && !(isSystem && folder === "/usr/include"));
  return { prefix, libraryFolder, includeFolders };
}

function versionOf(layout) {
  const candidates = [
    join(layout.prefix, "include", "torch", "headeronly", "version.h"),
    join(layout.prefix, "include", "torch", "csrc", "api", "include", "torch", "version.h"),
  ];
  for (const file of candidates) {
    if (!existsSync(file)) continue;
    const text = readFileSync(file, "utf8");
    const parts = ["MAJOR", "MINOR", "PATCH"].map(
      (part) => new RegExp(`TORCH_VERSION_${part}\\s+(\\d+)`).exec(text)?.[1],
    );
    if (parts.every((part) => part !== undefined)) return parts.join(".");
  }
  return "unknown";
}

/** Whether libtorch was compiled with the newer std::string, detected by the mangled name of one of its functions. */
function usesNewStrings(layout) {
  const file = openSync(join(layout.libraryFolder, "libc10.so"), "r");
  try {
    const size = statSync(join(layout.libraryFolder, "libc10.so")).size;
    const bytes = Buffer.alloc(size);
    readSync(file, bytes, 0, size, 0);
    return !bytes.includes("torchCheckFailEPKcS2_jRKSs");
  } finally {
    closeSync(file);
  }
}

/** Node-API's headers: from the npm package, or from this Node's installation. */
function nodeHeaders() {
  const require = createRequire(import.meta.url);
  const candidates = [];
  try {
    candidates.push(join(dirname(require.resolve("node-api-headers/package.json")), "include"));
  } catch {
    // Not installed: try the next candidate.
  }
  candidates.push(resolve(dirname(process.execPath), "..", "include", "node"));
  const found = candidates.find((folder) => existsSync(join(folder, "node_api.h")));
  if (found === undefined) {
    throw new BuildError(`Node-API headers were not found in ${candidates.join(" or ")}; run npm ci first`);
  }
  return found;
}

/**
 * Names an object file by everything that it is made of, so that only what changed is compiled again. Where this package lies
 * does not count: another installation of it can take the objects over.
 */
function objectName(file, flags, layout, files) {
  const hash = createHash("sha256").update(JSON.stringify([flags, libraryFacts(layout)]));
  for (const each of files) if (each === file || each.endsWith(".h")) hash.update(readFileSync(each));
  return `${basename(file)}.${hash.digest("hex").slice(0, 16)}.o`;
}

/** Size and time of the libraries: an upgrade in place must cause a rebuild. */
function libraryFacts(layout) {
  return ["libtorch_cpu.so", "libc10.so"].map((name) => {
    const facts = statSync(join(layout.libraryFolder, name));
    return `${name} ${facts.size} ${Math.trunc(facts.mtimeMs)}`;
  });
}

function fingerprint(layout, flags, files) {
  const hash = createHash("sha256");
  hash.update(JSON.stringify([layout, libraryFacts(layout), flags, process.version.split(".")[0]]));
  for (const file of files) hash.update(relative(packageFolder, file)).update(readFileSync(file));
  return hash.digest("hex");
}

function run(command, parameters) {
  return new Promise((fulfil, reject) => {
    const child = spawn(command, parameters, { stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
    child.on("error", (error) => {
      reject(
        new BuildError(
          error.code === "ENOENT"
            ? `${command} was not found; install a C++17 compiler (on Debian: apt-get install g++) or set CXX`
            : `${command} could not be started: ${error.message}`,
        ),
      );
    });
    child.on("close", (code, signal) => {
      if (code === 0) fulfil(output);
      else {
        const reason = signal === null ? `exit code ${code}` : `signal ${signal} (out of memory?)`;
        reject(
          new BuildError(`${command} failed with ${reason}\n${output.split("\n").slice(0, 30).join("\n")}`),
        );
      }
    });
  });
}

/** Files, sorted by compile time, longest last. */
const LONGEST = ["fused-attention.cpp", "function.cpp", "dispatch.cpp", "decode-attention.cpp"];
/** Fewer files compile sooner without the precompiled header. */
const FEWEST_WITH_HEADER = 4;

/**
 * Compiles native/precompiled.h into a folder. Returns the arguments that make a compilation use it: none if the
 * compiler is not GCC, whose way of precompiling headers this is.
 */
async function precompileHeader(compiler, parameters, folder) {
  if (!(await run(compiler, ["--version"])).includes("Free Software Foundation")) return [];
  // If GCC does not use the precompiled one, it reads this.
  const header = join(folder, "precompiled.h");
  writeFileSync(header, `#include ${JSON.stringify(join(sourceFolders[0], "precompiled.h"))}\n`);
  await run(compiler, [...parameters, "-x", "c++-header", header, "-o", `${header}.gch`]);
  return ["-include", header];
}

/**
 * Builds the addon if it is out of date.
 * Returns the stamp: { libtorch, version, libraryFolder, fingerprint, rebuilt }.
 */
export async function build({
  libtorch,
  output = join(packageFolder, "build"),
  force = false,
  log = () => {},
} = {}) {
  const layout = layoutOf(resolve(libtorch ?? recordedLibtorch() ?? process.env.LIBTORCH ?? "/usr"));
  const files = sourceFolders.flatMap((folder) =>
    readdirSync(folder, { recursive: true })
      .map((name) => join(folder, name))
      .filter((path) => /\.(cpp|h|c)$/.test(path)),
  );
  files.sort();
  const headers = nodeHeaders();
  const compiler = process.env.CXX ?? "g++";
  // Not part of the fingerprint: where they lie does not matter, Node-API is stable, and our own headers are hashed.
  const pathFlags = [
    "-isystem",
    headers,
    // After libtorch's folders, so that Gloo's own headers are taken where there are some.
    "-isystem",
    join(sourceFolders[0], "gloo-declarations"),
    "-iquote",
    sourceFolders[0],
  ];
  const hasCuda = existsSync(join(layout.libraryFolder, "libtorch_cuda.so"));
  const flags = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fexceptions",
    "-frtti",
    "-fopenmp",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    // Functions that return a vector register are all inlined: so calling conventions do not matter.
    "-Wno-psabi",
    `-D_GLIBCXX_USE_CXX11_ABI=${usesNewStrings(layout) ? 1 : 0}`,
    "-DNAPI_VERSION=8",
    "-DNODE_GYP_MODULE_NAME=torch",
    ...layout.includeFolders.flatMap((folder) => ["-isystem", folder]),
  ];
  const version = versionOf(layout);
  const graphFlags = cudaGraphFlags(layout, version);
  const flagsOf = (file) => (basename(file) === "graph.cpp" ? [...flags, ...graphFlags] : flags);
  const print = fingerprint(layout, [compiler, ...flags, ...graphFlags], files);
  const stampFile = join(output, "stamp.json");
  const addonFile = join(output, "astra_torch.node");
  const preloadFile = join(output, "preload.node");
  if (!force && existsSync(stampFile) && existsSync(addonFile) && existsSync(preloadFile)) {
    try {
      const stamp = JSON.parse(readFileSync(stampFile, "utf8"));
      if (stamp.fingerprint === print) return { ...stamp, rebuilt: false };
    } catch {
      // An incomplete stamp means that a build was interrupted: build again.
    }
  }
  log(`Building the addon against libtorch ${version} in ${layout.prefix}`);
  const objects = join(output, "objects");
  mkdirSync(objects, { recursive: true });
  const sources = files.filter((file) => file.endsWith(".cpp"));
  const started = Date.now();
  // Each compiler uses up to 1 GB with libtorch's headers.
  const workers = Math.max(1, Math.min(availableParallelism(), Math.floor(freemem() / 1e9), sources.length));
  const objectOf = new Map(
    sources.map((file) => [
      file,
      join(objects, objectName(file, [compiler, ...flagsOf(file)], layout, files)),
    ]),
  );
  // The longest first, so that no core is idle at the end.
  const queue = sources
    .filter((file) => force || !existsSync(objectOf.get(file)))
    .sort((one, other) => LONGEST.indexOf(basename(other)) - LONGEST.indexOf(basename(one)));
  const wanted = queue.length;
  const parameters = [...flags, ...pathFlags];
  // Files that are begun before the headers are compiled do without them; their code is the same.
  let included = [];
  let finished = 0;
  const work = async () => {
    for (let file = queue.shift(); file !== undefined; file = queue.shift()) {
      const object = objectOf.get(file);
      const compile = (own) =>
        run(compiler, [...own, ...pathFlags, ...included, "-c", file, "-o", `${object}.new`]);
      await compile(flagsOf(file)).catch((error) => {
        if (flagsOf(file) === flags) throw error;
        log(
          `  ${basename(file)} without CUDA graphs: these headers do not fit it (${error.message.split("\n", 2).join(": ")})`,
        );
        return compile(flags);
      });
      renameSync(`${object}.new`, object);
      finished += 1;
      log(`  compiled ${basename(file)} (${finished} of ${wanted})`);
    }
  };
  const begin = async (worker) => {
    if (worker === 0 && wanted >= FEWEST_WITH_HEADER) {
      included = await precompileHeader(compiler, parameters, objects);
    }
    await work();
  };
  await Promise.all(Array.from({ length: workers }, (_, worker) => begin(worker)));
  rmSync(join(objects, "precompiled.h.gch"), { force: true });
  for (const stale of readdirSync(objects)) {
    if (![...objectOf.values()].includes(join(objects, stale))) rmSync(join(objects, stale));
  }
  const libraries = ["torch_cpu", "c10", ...(hasCuda ? ["torch_cuda", "c10_cuda"] : [])];
  // Written to a temporary file and renamed, so that a running process never sees a partial file.
  await run(compiler, [
    "-shared",
    "-fopenmp",
    "-o",
    `${addonFile}.new`,
    ...objectOf.values(),
    // The CUDA library registers itself when it is loaded; no symbol refers to it.
    "-Wl,--no-as-needed",
    ...libraries.map((name) => join(layout.libraryFolder, `lib${name}.so`)),
    `-Wl,-rpath,${layout.libraryFolder}`,
    // Node unloads a worker's addons when it exits; libtorch still holds this addon's allocator.
    ...(process.platform === "linux" ? ["-Wl,-z,nodelete"] : []),
  ]);
  renameSync(`${addonFile}.new`, addonFile);
  await run(compiler, [
    "-x",
    "c",
    "-O2",
    "-fPIC",
    "-shared",
    "-DNAPI_VERSION=8",
    "-DNODE_GYP_MODULE_NAME=preload",
    "-isystem",
    headers,
    join(sourceFolders[0], "kernels/preload.c"),
    "-o",
    `${preloadFile}.new`,
    "-ldl",
  ]);
  renameSync(`${preloadFile}.new`, preloadFile);
  const stamp = { libtorch: layout.prefix, version, libraryFolder: layout.libraryFolder, fingerprint: print };
  writeFileSync(stampFile, `${JSON.stringify(stamp, null, 2)}\n`);
  log(`Built ${addonFile} in ${((Date.now() - started) / 1000).toFixed(0)} s`);
  return { ...stamp, rebuilt: true };
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: {
      libtorch: { type: "string" },
      output: { type: "string" },
      force: { type: "boolean", default: false },
      quiet: { type: "boolean", default: false },
    },
  });
  try {
    const stamp = await build({
      libtorch: values.libtorch,
      output: values.output === undefined ? undefined : resolve(values.output),
      force: values.force,
      log: values.quiet ? () => {} : (line) => console.log(line),
    });
    if (!stamp.rebuilt && !values.quiet)
      console.log(`The addon is up to date (libtorch ${stamp.version} in ${stamp.libtorch})`);
  } catch (error) {
    if (!(error instanceof BuildError)) throw error;
    console.error(`build: ${error.message}`);
    process.exitCode = 1;
  }
}
