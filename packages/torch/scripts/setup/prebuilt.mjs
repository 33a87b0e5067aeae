import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/**
 * An engine that a release built: `engine.json` beside the addon, written by scripts/release/build-engine.mjs.
 *
 * @typedef {object} Prebuilt
 * @property {string} folder absolute
 * @property {string} version of the package
 * @property {string} libtorch the only version that it may be loaded with, such as "2.13.0"
 * @property {string} glibc the oldest GNU C library that it runs with, such as "2.28"
 */

/** Package that holds the prebuilt engine of a platform. */
export const prebuiltName = (platform = process.platform, architecture = process.arch) =>
  `@astra-rl/torch-${platform}-${architecture}`;

/** The prebuilt engine in a folder, or null. @returns {Prebuilt | null} */
export function prebuiltIn(folder) {
  const file = join(folder, "engine.json");
  return existsSync(file) ? { folder, ...JSON.parse(readFileSync(file, "utf8")) } : null;
}

/**
 * The prebuilt engine that is installed beside this package, or null. In a clone the package has no engine unless a
 * release was tried there.
 *
 * @returns {Prebuilt | null}
 */
export function prebuiltEngine() {
  try {
    const require = createRequire(import.meta.url);
    return prebuiltIn(join(dirname(require.resolve(`${prebuiltName()}/package.json`)), "engine"));
  } catch {
    return null;
  }
}

/**
 * Whether a prebuilt engine may be loaded with a libtorch: the same version, without CUDA, whose libraries it does not
 * name.
 *
 * @param {{ version: string | null, cuda: boolean }} libtorch
 * @param {Prebuilt | null} prebuilt
 */
export const fitsPrebuilt = ({ version, cuda }, prebuilt) =>
  prebuilt !== null && version === prebuilt.libtorch && !cuda;
