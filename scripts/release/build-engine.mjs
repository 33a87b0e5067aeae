#!/usr/bin/env node
/**
 * Builds the prebuilt engine, packages/torch-linux-x64/engine/, from what @astra-rl/torch publishes, and states which C and C++
 * libraries it needs, as read from the symbols of the built files.
 *
 *   node scripts/release/build-engine.mjs [--libtorch PREFIX] [--cache DIR] [--glibc VERSION] [--glibcxx VERSION]
 *
 *   --libtorch   a folder with include/ and lib/ of the pinned libtorch; otherwise PyTorch's official archive is fetched
 *   --cache      where compiled files are kept and taken from: their names are hashes of what they are made of
 *   --glibc, --glibcxx   fail if the built files need a later GNU C library, or later symbols of the C++ library
 *
 * The TypeScript must be built (npm run build), since the engine is tried at the end. For a release it runs in a container with an
 * old GNU C library; elsewhere the result runs on systems as new as the one it was built on.
 */
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { archiveFolder, fetchArchive, OFFICIAL } from "../../packages/torch/scripts/setup/archive.mjs";
import { fromCache, inspectRoot } from "../../packages/torch/scripts/setup/libtorch.mjs";
import { ISAS } from "../../packages/torch/dist/native.js";
import { newestSymbols, neededLibraries } from "./elf.mjs";
import { readJson, root, run } from "./shared.mjs";

const target = join(root, "packages/torch-linux-x64/engine");
const say = (line) => process.stdout.write(`engine: ${line}\n`);

/** What the files may need besides the C library: the compiler's libraries, and libtorch. Everything else would be missing somewhere. */
const ALLOWED =
  /^(libtorch_cpu|libc10|libgomp|libstdc\+\+|libgcc_s|libm|libc|libdl|libpthread|librt|ld-linux-x86-64)\.so(\.\d+)?$/u;

const { values } = parseArgs({
  options: {
    libtorch: { type: "string" },
    cache: { type: "string", default: join(root, ".cache/release/objects") },
    glibc: { type: "string" },
    glibcxx: { type: "string" },
  },
});

async function libtorch() {
  if (values.libtorch !== undefined) {
    const { found, why } = inspectRoot("LIBTORCH", resolve(values.libtorch));
    if (!found) throw new Error(`--libtorch: ${why}`);
    return found;
  }
  const folder = archiveFolder(OFFICIAL);
  if (!fromCache(folder).found) await fetchArchive(OFFICIAL, folder, say);
  return fromCache(folder).found;
}

/** Unpacks what @astra-rl/torch publishes: the engine is built from that, without the functions for tests of a clone. */
function publishedSources() {
  mkdirSync(join(root, ".cache/release"), { recursive: true });
  const folder = mkdtempSync(join(root, ".cache/release/sources-"));
  const packing = [
    "pack",
    "--json",
    "--ignore-scripts",
    "--workspace",
    "packages/torch",
    "--pack-destination",
    folder,
  ];
  const [{ filename }] = Object.values(JSON.parse(run("npm", packing, { cwd: root })));
  run("tar", ["-xzf", join(folder, filename), "-C", folder]);
  return folder;
}

/**
 * Links the objects again, without a path to this machine's libtorch: the loader opens libtorch by its path, and the dynamic linker
 * then finds it by its name.
 */
function link(objects, libraryDirectory, output) {
  const files = readdirSync(objects)
    .filter((name) => name.endsWith(".o"))
    .sort();
  run(process.env.CXX ?? "g++", [
    "-shared",
    "-fopenmp",
    "-s",
    "-o",
    output,
    ...files.map((name) => join(objects, name)),
    "-Wl,--no-as-needed",
    ...["libtorch_cpu.so", "libc10.so"].map((name) => join(libraryDirectory, name)),
    "-Wl,-z,nodelete",
    "-Wl,-z,noexecstack",
  ]);
}

function check(files, found) {
  const symbols = newestSymbols(files);
  for (const file of files) {
    const { needed, paths } = neededLibraries(file);
    const others = needed.filter((name) => !ALLOWED.test(name));
    if (others.length > 0) throw new Error(`${file} needs ${others.join(", ")}, which not every system has`);
    if (paths.length > 0) throw new Error(`${file} names a folder of this machine: ${paths.join(", ")}`);
  }
  say(
    `needs the GNU C library ${symbols.GLIBC} (glibc floor), and symbols up to GLIBCXX_${symbols.GLIBCXX} of the C++ library; ` +
      `libtorch ${found.version} itself needs ${newestSymbols([join(found.libraryDirectory, "libtorch_cpu.so")]).GLIBC}`,
  );
  for (const [option, name] of [
    ["glibc", "GLIBC"],
    ["glibcxx", "GLIBCXX"],
  ]) {
    if (values[option] !== undefined && isLater(symbols[name], values[option])) {
      throw new Error(`needs ${name}_${symbols[name]}, later than --${option} ${values[option]}`);
    }
  }
  return symbols;
}

const filesBelow = (path) => readdirSync(path, { recursive: true, encoding: "utf8" }).toSorted();

/** SHA-256 of what the engine was built from, wherever it lies. */
function sourcesHash(folder) {
  const digest = createHash("sha256");
  for (const part of ["native", "scripts/build.mjs"]) {
    const path = join(folder, part);
    const files = statSync(path).isDirectory() ? filesBelow(path) : [""];
    for (const name of files) {
      const file = join(path, name);
      if (statSync(file).isFile()) digest.update(`${part}/${name}\0`).update(readFileSync(file)).update("\0");
    }
  }
  return digest.digest("hex");
}

/**
 * Trains and decodes with the engine within each instruction set that it is for and this machine has, all of its symbols bound at
 * once: a missing one would otherwise end the process at its first call.
 */
function smoke(folder, libtorch) {
  const { instructionSets } = createRequire(import.meta.url)(join(folder, "preload.node"));
  const [inForce] = instructionSets();
  for (const isa of ISAS.slice(1, ISAS.indexOf(inForce) + 1)) {
    const env = {
      ...process.env,
      ASTRA_RL_ENGINE: folder,
      LIBTORCH: libtorch,
      ASTRA_ISA: isa,
      LD_BIND_NOW: "1",
    };
    run(process.execPath, [join(root, "scripts/smoke.mjs")], { cwd: root, env });
    say(`smoke run within ${isa}: passed`);
  }
}

const isLater = (one, other) => one.localeCompare(other, "en", { numeric: true }) > 0;

async function main() {
  const found = await libtorch();
  if (found.version !== OFFICIAL.version || found.cuda) {
    throw new Error(
      `${found.root} holds libtorch ${found.version}${found.cuda ? " with CUDA" : ""}; a release is built for ${OFFICIAL.version} without CUDA`,
    );
  }
  const sources = publishedSources();
  const output = `${target}.new`;
  try {
    const built = join(sources, "package/build");
    if (existsSync(values.cache)) cpSync(values.cache, join(built, "objects"), { recursive: true });
    const { build } = await import(pathToFileURL(join(sources, "package/scripts/build.mjs")).href);
    await build({ libtorch: found.root, output: built, log: say });
    cpSync(join(built, "objects"), values.cache, { recursive: true });
    rmSync(output, { recursive: true, force: true });
    mkdirSync(output, { recursive: true });
    link(join(built, "objects"), found.libraryDirectory, join(output, "astra_torch.node"));
    cpSync(join(built, "preload.node"), join(output, "preload.node"));
    run("strip", [join(output, "preload.node")]);
    const names = ["astra_torch.node", "preload.node"];
    const symbols = check(
      names.map((name) => join(output, name)),
      found,
    );
    const description = {
      version: readJson("packages/torch/package.json").version,
      libtorch: found.version,
      glibc: symbols.GLIBC,
      glibcxx: symbols.GLIBCXX,
      compiler: run(process.env.CXX ?? "g++", ["--version"]).split("\n")[0],
      sources: sourcesHash(join(sources, "package")),
      files: Object.fromEntries(
        names.map((name) => [
          name,
          createHash("sha256")
            .update(readFileSync(join(output, name)))
            .digest("hex"),
        ]),
      ),
    };
    writeFileSync(join(output, "engine.json"), `${JSON.stringify(description, null, 2)}\n`);
    smoke(output, found.root);
    rmSync(target, { recursive: true, force: true });
    renameSync(output, target);
    const size = names.reduce((sum, name) => sum + statSync(join(target, name)).size, 0);
    say(`built ${target} (${(size / 1e6).toFixed(1)} MB)`);
  } finally {
    rmSync(sources, { recursive: true, force: true });
    rmSync(output, { recursive: true, force: true });
  }
}

try {
  await main();
} catch (error) {
  process.stderr.write(`engine: ${error.message}\n`);
  process.exitCode = 1;
}
