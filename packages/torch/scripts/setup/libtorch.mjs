import { existsSync, readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { execute, onPath } from "./command.mjs";

/** The oldest libtorch that the addon compiles against. */
export const OLDEST_VERSION = "1.13";

/**
 * An available libtorch; written to packages/torch/build/libtorch.json, where `astra-rl doctor` reads it.
 *
 * @typedef {object} Libtorch
 * @property {"LIBTORCH" | "python" | "debian" | "download"} origin how it was found
 * @property {string} root its folder
 * @property {string} version such as "2.13.0"
 * @property {string} libraryDirectory absolute
 * @property {readonly string[]} libraries absolute; those of CUDA only if present
 * @property {boolean} cuda
 * @property {string | null} blas a BLAS to load before it; null if libtorch includes its own
 */

/**
 * @typedef {{ found: Libtorch } | { found: null, why: string }} Search
 *   `why`: a clause; empty if there was nothing to check
 */

const nothing = (why = "") => ({ found: null, why });

const laterOrEqual = (version, floor) => {
  const [a, b] = [version, floor].map((text) => text.split(".").map(Number));
  return a[0] !== b[0] ? a[0] > b[0] : a[1] >= b[1];
};

/**
 * Checks a folder that should contain `include/` and `lib/`.
 *
 * @param {{ origin: Libtorch["origin"], root: string, include: string, libraryDirectory: string, blas?: string | null }} place
 * @returns {Search}
 */
function inspect({ origin, root, include, libraryDirectory, blas = null }) {
  if (!existsSync(join(include, "ATen/ATen.h"))) {
    return nothing(`${root} has no headers (include/ATen/ATen.h)`);
  }
  const required = ["libtorch.so", "libtorch_cpu.so", "libc10.so"].map((name) =>
    join(libraryDirectory, name),
  );
  const missing = required.find((path) => !existsSync(path));
  if (missing !== undefined) return nothing(`${missing} is missing`);
  const version = versionFromHeaders(include);
  if (version === null) return nothing(`the version of ${root} could not be read`);
  if (!laterOrEqual(version, OLDEST_VERSION)) {
    return nothing(`${root} is version ${version}, older than ${OLDEST_VERSION}`);
  }
  const optional = ["libtorch_cuda.so", "libc10_cuda.so"].map((name) => join(libraryDirectory, name));
  const cudaLibraries = optional.filter((path) => existsSync(path));
  return {
    found: {
      origin,
      root,
      version,
      libraryDirectory,
      libraries: [...required, ...cudaLibraries],
      cuda: cudaLibraries.length > 0,
      blas,
    },
  };
}

/**
 * From the headers; recent versions have the numbers in another file than older ones.
 *
 * @param {string} include
 * @returns {string | null} such as "2.13.0"; null if it cannot be read
 */
export function versionFromHeaders(include) {
  const files = ["torch/headeronly/version.h", "torch/csrc/api/include/torch/version.h"];
  const file = files.map((name) => join(include, name)).find((path) => existsSync(path));
  if (file === undefined) return null;
  const text = readFileSync(file, "utf8");
  const parts = ["MAJOR", "MINOR", "PATCH"].map(
    (part) => new RegExp(`#define TORCH_VERSION_${part} (\\d+)`).exec(text)?.[1],
  );
  return parts.includes(undefined) ? null : parts.join(".");
}

/** The layout that the official archives and the Python wheels share. @returns {Search} */
export function inspectRoot(origin, root) {
  const include = join(root, "include");
  return inspect({ origin, root, include, libraryDirectory: join(root, "lib") });
}

/** `$LIBTORCH`. An unusable value is reported as an error, not skipped: the caller stops. @returns {Search} */
export function fromVariable(value = process.env.LIBTORCH) {
  if (value === undefined || value === "") return nothing();
  if (!existsSync(value)) return nothing(`LIBTORCH is ${value}, which does not exist`);
  return inspectRoot("LIBTORCH", realpathSync(value));
}

/** The `torch` package of the python3 that is first on the path. It is looked up, not imported (seconds). @returns {Search} */
export function fromPython(python = onPath("python3")) {
  if (python === null) return nothing();
  const question =
    "import importlib.util as u; s = u.find_spec('torch'); print(list(s.submodule_search_locations)[0] if s else '')";
  const answer = execute(python, ["-c", question], { timeoutMilliseconds: 30_000 });
  if (!answer.ok) return nothing(`${python} does not run (${answer.reason})`);
  const root = answer.output.trim().split("\n").at(-1) ?? "";
  if (root === "") return nothing();
  return inspectRoot("python", root);
}

const debianLibraryDirectory = () => {
  const candidates = ["x86_64-linux-gnu", "aarch64-linux-gnu"].map((triplet) => join("/usr/lib", triplet));
  return candidates.find((folder) => existsSync(join(folder, "libtorch_cpu.so"))) ?? null;
};

/** Folder of Debian's libopenblas0-openmp, or null. Its pthread variant competes with libtorch's own threads. */
export function openmpBlas(libraryDirectory) {
  const library = join(libraryDirectory, "openblas-openmp/libopenblas.so.0");
  return existsSync(library) ? library : null;
}

/** Debian's or Ubuntu's `libtorch-dev`. @returns {Search} */
export function fromDebian() {
  const libraryDirectory = debianLibraryDirectory();
  if (libraryDirectory === null || !existsSync("/usr/include/ATen/ATen.h")) return nothing();
  return inspect({
    origin: "debian",
    root: "/usr",
    include: "/usr/include",
    libraryDirectory,
    blas: openmpBlas(libraryDirectory),
  });
}

/** An archive that was unpacked earlier into a folder. @returns {Search} */
export function fromCache(folder) {
  const root = join(folder, "libtorch");
  return existsSync(root) ? inspectRoot("download", root) : nothing();
}

/** A user-writable cache folder, by the XDG specification. */
export function cacheFolder(environment = process.env) {
  if (environment.ASTRA_RL_CACHE) return environment.ASTRA_RL_CACHE;
  const base = environment.XDG_CACHE_HOME || join(environment.HOME ?? dirname(process.cwd()), ".cache");
  return join(base, "astra-rl");
}
