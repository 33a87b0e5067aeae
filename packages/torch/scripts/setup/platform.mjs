import { SetupProblem } from "./problem.mjs";

/**
 * Stops on unsupported systems, before anything else is checked.
 *
 * @param {string} platform
 * @throws {SetupProblem}
 */
export function checkPlatform(platform = process.platform) {
  if (platform === "linux") return;
  const name = { darwin: "macOS", win32: "Windows" }[platform] ?? platform;
  throw new SetupProblem(`${name} is not supported yet: the engine is built and loaded on Linux only.`, [
    "use Linux, in a virtual machine or a container, for example node:20-bookworm",
    ...(platform === "win32" ? ["use the Windows Subsystem for Linux"] : []),
  ]);
}

/**
 * What a compiler cannot build of the engine, as a sentence; null if it can build all.
 *
 * @param {string} description its output for --version
 * @param {string} version its output for -dumpversion
 */
export function compilerShortcoming(description, version, architecture = process.arch) {
  if (architecture !== "x64") return null;
  if (/clang/i.test(description)) {
    return "clang compiles the engine's own loops for the oldest processors only, 1.35 to 2 times slower; g++ 12 or later does not";
  }
  const major = Number.parseInt(version, 10);
  if (!(major < 12)) return null;
  if (major === 11) {
    return "g++ 11 does not vectorise all of the engine's own loops (log-softmax is slower); g++ 12 or later does";
  }
  return (
    `g++ ${major} compiles the engine's own loops for the oldest processors only, 1.35 to 2 times slower, and does not support tiles ` +
    "(AMX); g++ 12 or later does not have these limits"
  );
}

const OLDEST_NODE = [20, 19];

/** @throws {SetupProblem} for a Node that is too old */
export function checkNode(version = process.versions.node) {
  const [major, minor] = version.split(".").map(Number);
  if (major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1])) return;
  throw new SetupProblem(`Node is version ${version}; ${OLDEST_NODE.join(".")} or later is needed.`, [
    "install a current Node from nodejs.org",
    "with nvm: nvm install 22 && nvm use 22",
  ]);
}
