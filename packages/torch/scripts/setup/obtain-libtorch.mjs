import { aptAccess, aptInstall } from "./apt.mjs";
import { archiveFolder, archiveSource, fetchArchive } from "./archive.mjs";
import { onPath } from "./command.mjs";
import { fromCache, fromDebian, fromPython, fromVariable } from "./libtorch.mjs";
import { fitsPrebuilt } from "./prebuilt.mjs";
import { SetupProblem } from "./problem.mjs";

/**
 * Finds a libtorch, or gets one: `$LIBTORCH`, the Python package, Debian's, one downloaded earlier; else apt,
 * else the official archive. With a prebuilt engine, the official archive comes before Debian's, and before a Python
 * package that no compiler could build an engine for.
 *
 * @param {object} means each way of finding or getting one; the defaults are the real ones
 * @param {(line: string) => void} means.say
 * @param {string} [means.command] the set-up command, for remedies
 * @param {import("./prebuilt.mjs").Prebuilt | null} [means.prebuilt]
 * @returns {Promise<import("./libtorch.mjs").Libtorch>}
 * @throws {SetupProblem} with every reason and every remedy
 */
export async function obtainLibtorch({
  say,
  command = "npm run setup",
  prebuilt = null,
  canBuild = () => onPath(process.env.CXX || "g++") !== null,
  variable = fromVariable,
  python = fromPython,
  debian = fromDebian,
  cached = fromCache,
  aptWhyNot = () => aptAccess().why,
  install = aptInstall,
  source = archiveSource,
  fetch = fetchArchive,
}) {
  const given = variable();
  if (given.found) return given.found;
  if (given.why) {
    throw new SetupProblem(`libtorch: ${given.why}.`, [
      "set LIBTORCH to the folder that holds include/ and lib/ of an unpacked libtorch",
      "unset LIBTORCH, and set-up looks for libtorch itself or installs it",
    ]);
  }
  const ofPython = python();
  const needsBuild = prebuilt !== null && ofPython.found && !fitsPrebuilt(ofPython.found, prebuilt);
  if (ofPython.found && !(needsBuild && !canBuild())) return ofPython.found;
  if (needsBuild) {
    const { version, cuda } = ofPython.found;
    say(
      `passing over the Python package torch: for version ${version}${cuda ? " with CUDA" : ""} the engine must be built, ` +
        "and there is no compiler (install g++ to use it)",
    );
  } else if (ofPython.why) say(`passing over the Python package torch: ${ofPython.why}`);

  const reasons = [];
  const archive = source();
  const kept = () => ("problem" in archive ? { found: null, why: "" } : cached(archiveFolder(archive)));
  /** The archive's libtorch, downloaded unless it was before; null, with a reason, if it cannot be had. */
  const fromArchive = async () => {
    if ("problem" in archive) {
      reasons.push(archive.problem);
      return null;
    }
    const earlier = kept();
    if (earlier.found) return earlier.found;
    try {
      say("fetching the official libtorch archive");
      await fetch(archive, archiveFolder(archive), say);
      const { found, why } = kept();
      if (found) return found;
      reasons.push(`the archive ${archive.url} is not usable: ${why || "it holds no libtorch folder"}`);
    } catch (error) {
      reasons.push(error.message);
    }
    return null;
  };
  if (prebuilt !== null) {
    const found = await fromArchive();
    if (found !== null) return found;
    say(
      `libtorch ${prebuilt.libtorch}, which the prebuilt engine is for, could not be had (${reasons.at(-1)}); ` +
        "looking for another one, to build the engine for it",
    );
  }

  const ofDebian = debian();
  if (ofDebian.found?.blas) return ofDebian.found;
  if (!ofDebian.found && ofDebian.why) say(`passing over Debian's libtorch-dev: ${ofDebian.why}`);
  const earlier = ofDebian.found ? null : kept();
  if (earlier?.found) return earlier.found;

  const whyNot = aptWhyNot();
  if (whyNot !== "") {
    reasons.push(whyNot);
  } else {
    const wanted = ofDebian.found ? ["libopenblas0-openmp"] : ["libtorch-dev", "libopenblas0-openmp"];
    say(`${wanted[0]} is not installed`);
    const { ok, why } = install(wanted, say);
    const installed = debian();
    if (installed.found) return installed.found;
    reasons.push(ok ? `after apt-get install, ${installed.why || "libtorch was still not found"}` : why);
  }
  // Without the OpenMP BLAS it is slow, but it works.
  if (ofDebian.found) return ofDebian.found;

  const found = prebuilt === null ? await fromArchive() : null;
  if (found !== null) return found;
  throw new SetupProblem(`libtorch was not found and could not be installed (${reasons.join("; ")}).`, [
    "apt-get install --no-install-recommends libtorch-dev libopenblas0-openmp   (as root, Debian 12 or later)",
    `pip install torch${prebuilt === null ? "" : `==${prebuilt.libtorch}`}   (into the python3 that is first on the path)`,
    `LIBTORCH=/path/to/libtorch ${command}   (an unpacked archive from pytorch.org, C++11 ABI)`,
    `ASTRA_RL_LIBTORCH_URL=... ASTRA_RL_LIBTORCH_SHA256=... ${command}   (a mirror of the archive)`,
  ]);
}
