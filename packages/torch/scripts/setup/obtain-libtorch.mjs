import { join } from "node:path";
import { aptAccess, aptInstall } from "./apt.mjs";
import { archiveSource, fetchArchive } from "./archive.mjs";
import { cacheFolder, fromCache, fromDebian, fromPython, fromVariable } from "./libtorch.mjs";
import { SetupProblem } from "./problem.mjs";

/**
 * Finds a libtorch, or gets one: `$LIBTORCH`, the Python package, Debian's, one downloaded earlier; else apt,
 * else the official archive.
 *
 * @param {object} means each way of finding or getting one; the defaults are the real ones
 * @param {(line: string) => void} means.say
 * @returns {Promise<import("./libtorch.mjs").Libtorch>}
 * @throws {SetupProblem} with every reason and every remedy
 */
export async function obtainLibtorch({
  say,
  folder = join(cacheFolder(), "libtorch-archive"),
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
  if (ofPython.found) return ofPython.found;
  if (ofPython.why) say(`passing over the Python package torch: ${ofPython.why}`);

  const ofDebian = debian();
  if (ofDebian.found?.blas) return ofDebian.found;
  if (!ofDebian.found && ofDebian.why) say(`passing over Debian's libtorch-dev: ${ofDebian.why}`);
  const kept = ofDebian.found ? null : cached(folder);
  if (kept?.found) return kept.found;

  const reasons = [];
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

  const archive = source();
  if ("problem" in archive) {
    reasons.push(archive.problem);
  } else {
    try {
      say("fetching the official libtorch archive");
      await fetch(archive, folder, say);
      const downloaded = cached(folder);
      if (downloaded.found) return downloaded.found;
      reasons.push(
        `the archive ${archive.url} is not usable: ${downloaded.why || "it holds no libtorch folder"}`,
      );
    } catch (error) {
      reasons.push(error.message);
    }
  }
  throw new SetupProblem(`libtorch was not found and could not be installed (${reasons.join("; ")}).`, [
    "apt-get install --no-install-recommends libtorch-dev libopenblas0-openmp   (as root, Debian 12 or later)",
    "pip install torch   (into the python3 that is first on the path)",
    "LIBTORCH=/path/to/libtorch npm run setup   (an unpacked archive from pytorch.org, C++11 ABI)",
    "ASTRA_RL_LIBTORCH_URL=... ASTRA_RL_LIBTORCH_SHA256=... npm run setup   (a mirror of the archive)",
  ]);
}
