import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { aptInstall } from "./apt.mjs";
import { execute, executeBeside, onPath } from "./command.mjs";
import { fingerprint, hash } from "./fingerprint.mjs";
import { obtainLibtorch } from "./obtain-libtorch.mjs";
import { compilerShortcoming } from "./platform.mjs";
import { fitsPrebuilt } from "./prebuilt.mjs";
import { SetupProblem } from "./problem.mjs";

/** @typedef {{ name: string, key: () => string, present: () => boolean, make: () => void | Promise<void> }} Step */

const packageFolder = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const inPackage = (...parts) => join(packageFolder, ...parts);

/**
 * Whether a folder contains an addon for the selected libtorch. The set-ups of a clone and of an installed package each
 * record what they did, but share one addon, which the other may have built for another libtorch.
 */
export function isBuilt(folder) {
  const read = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"));
  try {
    return (
      ["astra_torch.node", "preload.node"].every((name) => existsSync(join(folder, name))) &&
      read("stamp.json").libtorch === resolve(read("libtorch.json").root)
    );
  } catch {
    return false;
  }
}

/**
 * The steps that prepare this package's engine: a compiler, a libtorch, the addon; with a prebuilt engine, `obstacle` tells
 * whether compiler and addon are needed at all. Each step has a key (a hash of its inputs), for callers that record finished
 * steps.
 *
 * @param {object} options
 * @param {(line: string) => void} options.say
 * @param {string} [options.cwd]
 * @param {string} [options.command] the set-up command, for remedies
 * @param {import("./prebuilt.mjs").Prebuilt | null} [options.prebuilt]
 * @returns {{ compiler: Step, engine: Step, addon: Step, obstacle: () => Promise<string | null> }}
 */
export function engineSteps({ say, cwd = packageFolder, command, prebuilt = null }) {
  const compilerName = () => process.env.CXX || "g++";

  /** @type {Step} */
  const compiler = {
    name: "compiler",
    key: () => hash(`${compilerName()} ${onPath(compilerName())}`),
    present: () => existsSync(compilerName()) || onPath(compilerName()) !== null,
    make() {
      if (!this.present()) this.install();
      const [description, version] = ["--version", "-dumpversion"].map(
        (option) => execute(compilerName(), [option]).output,
      );
      const shortcoming = compilerShortcoming(description, version.trim());
      if (shortcoming !== null) say(`note: ${shortcoming}`);
    },
    install() {
      const name = compilerName();
      const remedies = [
        "install a C++ compiler: apt-get install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora)",
        "name another compiler: set CXX=/path/to/c++",
        ...(prebuilt === null
          ? []
          : [
              `use the prebuilt engine: LIBTORCH=/path/to/libtorch ${command}   (version ${prebuilt.libtorch}, without CUDA)`,
            ]),
      ];
      if (name !== "g++") throw new SetupProblem(`CXX is ${name}, which is not on the path.`, remedies);
      say("there is no C++ compiler");
      const { ok, why } = aptInstall(["g++"], say);
      if (!ok || !this.present()) throw new SetupProblem(`g++ was not found, and ${why}.`, remedies);
    },
  };

  const libtorchFile = inPackage("build", "libtorch.json");

  /** Size and time of the library file itself: an upgrade in place must cause a rebuild. */
  function libraryState() {
    try {
      const described = JSON.parse(readFileSync(libtorchFile, "utf8"));
      return described.libraries
        .map((path) => `${path} ${statSync(path).size} ${statSync(path).mtimeMs}`)
        .join("\n");
    } catch {
      return null;
    }
  }

  /** @type {Step} */
  const engine = {
    name: "libtorch",
    key: () =>
      hash(
        JSON.stringify([
          process.env.LIBTORCH ?? "",
          onPath("python3"),
          libraryState(),
          ...(prebuilt === null ? [] : [prebuilt.libtorch]),
        ]),
      ),
    present: () => libraryState() !== null,
    async make() {
      const found = await obtainLibtorch({ say, command, prebuilt });
      mkdirSync(dirname(libtorchFile), { recursive: true });
      writeFileSync(libtorchFile, `${JSON.stringify(found, null, 2)}\n`);
      say(`libtorch ${found.version} from ${describeOrigin(found)}`);
      if (found.origin === "debian" && found.blas === null) {
        say(
          "note: without libopenblas0-openmp matrix products run at a quarter of their speed (apt-get install it)",
        );
      }
    },
  };

  const describeOrigin = ({ origin, root: folder }) =>
    ({
      LIBTORCH: `$LIBTORCH (${folder})`,
      python: `the Python package at ${folder}`,
      debian: "Debian's libtorch-dev",
      download: `the official archive (${folder})`,
    })[origin];

  /** @type {Step} */
  const addon = {
    name: "addon",
    key: () =>
      hash(
        fingerprint([
          inPackage("native"),
          inPackage("test", "native"),
          inPackage("scripts"),
          inPackage("package.json"),
          libtorchFile,
        ]) +
          compilerName() +
          libraryState(),
      ),
    present: () => isBuilt(inPackage("build")),
    async make() {
      say("building the engine (a minute or two)");
      const { root: prefix } = JSON.parse(readFileSync(libtorchFile, "utf8"));
      const build = [inPackage("scripts", "build.mjs"), "--libtorch", prefix];
      const result = await executeBeside(process.execPath, build, { cwd, show: true });
      if (!result.ok) {
        throw new SetupProblem("the addon did not compile; the compiler's message is above.", [
          "use another libtorch: set LIBTORCH=/path/to/libtorch",
          "use another compiler that supports C++17: set CXX=/path/to/c++",
        ]);
      }
    },
  };

  /** Why the prebuilt engine cannot be loaded with the libtorch that was found, as a clause; null if it can. */
  async function obstacle() {
    const found = JSON.parse(readFileSync(libtorchFile, "utf8"));
    if (!fitsPrebuilt(found, prebuilt)) {
      return `it is for libtorch ${prebuilt.libtorch} without CUDA, not for ${found.version}${found.cuda ? " with CUDA" : ""}`;
    }
    const engine = JSON.stringify(inPackage("dist", "index.js"));
    const probe = `const { ones } = await import(${engine}); ones([1]).dispose();`;
    const trial = `try { ${probe} } catch (error) { console.error(error.message); process.exitCode = 3; }`;
    const { ok, output, reason } = await executeBeside(
      process.execPath,
      ["--input-type=module", "-e", trial],
      { env: { ASTRA_RL_ENGINE: prebuilt.folder } },
    );
    return ok ? null : output.trim().split("\n")[0] || reason;
  }

  return { compiler, engine, addon, obstacle };
}
