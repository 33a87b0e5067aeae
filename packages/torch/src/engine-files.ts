/**
 * Which engine is loaded, with which libtorch: decided, and the versions compared, before any of their files is opened. An
 * engine that is loaded with another version of libtorch than it was built for may compute nonsense.
 */
import { readFileSync, statSync } from "node:fs";
import { dirname, join, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { UsageError } from "@astra-rl/base";
import { archiveFolder, archiveSource } from "../scripts/setup/archive.mjs";
import { fromCache, versionFromHeaders } from "../scripts/setup/libtorch.mjs";
import { prebuiltEngine, prebuiltIn, prebuiltName, type Prebuilt } from "../scripts/setup/prebuilt.mjs";

export interface EngineFiles {
  /** Holds `astra_torch.node` and `preload.node`. */
  folder: string;
  /** Of libtorch; null if unknown. */
  libraryFolder: string | null;
  /** Loaded before the addon, in this order: what a prebuilt engine needs, which does not name where its libtorch lies. */
  libraries: string[];
  prebuilt: Prebuilt | null;
}

interface Places {
  /** Where set-up builds, and records the libtorch that it found. Relative to src/ (tests) and dist/ alike. */
  build?: string;
  prebuilt?: () => Prebuilt | null;
  /** Of this package. */
  version?: string | undefined;
  environment?: Readonly<Record<string, string | undefined>>;
}

const PACKAGE = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const VERSION = (readJson(join(PACKAGE, "package.json")) as { version: string } | null)?.version;

/**
 * The engine to load: that of `$ASTRA_RL_ENGINE`; else the one that was built for the libtorch that set-up found; else
 * the prebuilt one.
 *
 * @throws UsageError if there is none, or its libtorch is missing or of another version
 */
export function findEngine({
  build = join(PACKAGE, "build"),
  prebuilt = prebuiltEngine,
  version = VERSION,
  environment = process.env,
}: Places = {}): EngineFiles {
  const recorded = readJson(join(build, "libtorch.json")) as Recorded | null;
  const named = environment["ASTRA_RL_ENGINE"];
  if (named !== undefined && named !== "") {
    const folder = resolve(named);
    const its = prebuiltIn(folder);
    if (its !== null) return fitted(its, version, recorded, environment);
    return (
      built(folder) ??
      refuse(
        "engine-not-built",
        `the engine is not built: there is no ${addonIn(folder)} (ASTRA_RL_ENGINE)`,
        [
          `unset ASTRA_RL_ENGINE, and run \`${setupCommand(build)}\``,
          "set ASTRA_RL_ENGINE to a folder that build.mjs --output has filled",
        ],
      )
    );
  }
  const released = prebuilt();
  const own = builtRoot(build);
  if (own !== null && (released === null || recorded === null || own === resolve(recorded.root))) {
    const files = built(build);
    if (files !== null) return files;
  }
  if (released !== null) return fitted(released, version, recorded, environment);
  return (
    built(build) ??
    refuse("engine-not-built", `the engine is not built: there is no ${addonIn(build)}`, [
      `run \`${setupCommand(build)}\`, which finds or installs libtorch and builds the engine (needs g++)`,
      ...missingPackage(build),
    ])
  );
}

interface Recorded {
  root: string;
  version: string;
  libraryDirectory: string;
}

const addonIn = (folder: string) => join(folder, "astra_torch.node");

const exists = (path: string) => statSync(path, { throwIfNoEntry: false }) !== undefined;

function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return null;
  }
}

/** Folder of the libtorch that the engine in a folder was built for; null if there is no engine. */
function builtRoot(folder: string): string | null {
  const stamp = readJson(join(folder, "stamp.json")) as { libtorch: string } | null;
  return stamp !== null && exists(addonIn(folder)) ? stamp.libtorch : null;
}

/** The engine that build.mjs wrote into a folder; null if there is none. */
function built(folder: string): EngineFiles | null {
  if (!exists(addonIn(folder))) return null;
  const stamp = readJson(join(folder, "stamp.json")) as {
    libtorch: string;
    version: string;
    libraryFolder: string;
  } | null;
  if (stamp !== null) {
    const now = versionFromHeaders(join(stamp.libtorch, "include"));
    // Headers may have been removed since.
    if (now !== null && now !== stamp.version) {
      refuse(
        "libtorch-mismatch",
        `the engine in ${folder} was built for libtorch ${stamp.version}, and ${stamp.libtorch} holds ${now} now`,
        [`run \`${setupCommand(folder)}\`, which builds it again`],
      );
    }
  }
  return { folder, libraryFolder: stamp?.libraryFolder ?? null, libraries: [], prebuilt: null };
}

/** A prebuilt engine with the libraries of its libtorch. @throws UsageError for another version, or none */
function fitted(
  prebuilt: Prebuilt,
  ours: string | undefined,
  recorded: Recorded | null,
  environment: Readonly<Record<string, string | undefined>>,
): EngineFiles {
  if (prebuilt.version !== ours) {
    refuse(
      "engine-mismatch",
      `the prebuilt engine in ${prebuilt.folder} is of version ${prebuilt.version}, and @astra-rl/torch of ${ours}`,
      ["install both in one version: delete node_modules and the lock file, and install again"],
    );
  }
  const source = archiveSource(environment);
  const variable = environment["LIBTORCH"] || undefined;
  const root =
    variable ??
    recorded?.root ??
    ("problem" in source ? undefined : fromCache(archiveFolder(source, environment)).found?.root);
  const remedies = [
    "run `npx astra-rl setup`, which finds or fetches it, or builds an engine for another libtorch (needs g++)",
    `set LIBTORCH to the folder of an unpacked libtorch ${prebuilt.libtorch} without CUDA`,
  ];
  if (root === undefined) {
    return refuse(
      "libtorch-not-found",
      `the prebuilt engine needs libtorch ${prebuilt.libtorch}, and none was found`,
      remedies,
    );
  }
  const libraryFolder =
    (root === recorded?.root ? recorded.libraryDirectory : undefined) ?? join(root, "lib");
  const version = versionFromHeaders(join(root, "include"));
  const hasCuda = exists(join(libraryFolder, "libtorch_cuda.so"));
  if (version !== prebuilt.libtorch || hasCuda) {
    const held = version === null ? "no libtorch that can be used" : `libtorch ${version}`;
    return refuse(
      "libtorch-mismatch",
      `the prebuilt engine is for libtorch ${prebuilt.libtorch} without CUDA, and ${root} holds ${held}${hasCuda ? " with CUDA" : ""}`,
      remedies,
    );
  }
  const libraries = ["libc10.so", "libtorch_cpu.so"].map((name) => join(libraryFolder, name));
  const missing = libraries.find((path) => !exists(path));
  if (missing !== undefined)
    refuse("libtorch-not-found", `libtorch is incomplete: there is no ${missing}`, remedies);
  return { folder: prebuilt.folder, libraryFolder, libraries, prebuilt };
}

/** How an installed package comes without its prebuilt engine. */
const missingPackage = (build: string) =>
  isInstalled(build) && process.platform === "linux" && process.arch === "x64"
    ? [
        `install ${prebuiltName()} with it: without --omit=optional, or, if the lock file was made on another system, ` +
          "after deleting node_modules and the lock file",
      ]
    : [];

const isInstalled = (folder: string) => folder.split(sep).includes("node_modules");

/** In a clone its set-up script, which does more; for an installed package the command. */
function setupCommand(folder: string): string {
  return isInstalled(folder)
    ? "npx astra-rl setup"
    : "npm run setup` in the project's folder, or `npx astra-rl setup";
}

/** @throws UsageError always: a cause, and remedies each of which suffices */
function refuse(rule: string, cause: string, remedies: readonly string[], options?: ErrorOptions): never {
  const list =
    remedies.length === 1
      ? `; ${remedies[0]}`
      : `; one of these helps:\n${remedies.map((each) => `  - ${each}`).join("\n")}`;
  throw new UsageError(rule, cause + list, options);
}

/** @throws UsageError always: files that were found could not be opened */
export function unloadable({ folder, prebuilt }: EngineFiles, cause: unknown): never {
  const reason = cause instanceof Error ? cause.message.split("\n")[0]! : String(cause);
  const remedy =
    prebuilt === null
      ? "builds it again"
      : "looks for libtorch again, and builds an engine if the prebuilt one cannot be loaded (needs g++)";
  return refuse(
    "engine-unloadable",
    `the ${prebuilt === null ? "" : "prebuilt "}engine in ${folder} cannot be loaded: ${(prebuilt && libraryShortcoming(prebuilt)) ?? reason}`,
    [`run \`${setupCommand(folder)}\`, which ${remedy}`],
    { cause },
  );
}

/** @throws UsageError if the loaded libtorch describes itself as another version than the prebuilt engine's */
export function requireVersion({ folder, libtorch }: Prebuilt, configuration: string): void {
  const loaded = /\bTORCH_VERSION=([\d.]+)/u.exec(configuration)?.[1] ?? "unknown";
  if (loaded === libtorch) return;
  refuse(
    "libtorch-mismatch",
    `the prebuilt engine in ${folder} is for libtorch ${libtorch}, and the library of version ${loaded} lies beside headers of ${libtorch}`,
    [`set LIBTORCH to a whole libtorch ${libtorch}, and run \`${setupCommand(folder)}\``],
  );
}

/** What the C library of this system lacks, as a clause; null if it is new enough. */
export function libraryShortcoming(
  { glibc }: Pick<Prebuilt, "glibc">,
  found = runtimeGlibc(),
): string | null {
  const needed = `it needs the GNU C library ${glibc} or later, and this system has`;
  if (found === null) return `${needed} another C library`;
  const [ours, theirs] = [found, glibc].map((text) => text.split(".").map(Number)) as [number[], number[]];
  return (ours[0]! - theirs[0]! || ours[1]! - theirs[1]!) < 0 ? `${needed} ${found}` : null;
}

/** Version of the GNU C library of this process; null with another C library. */
function runtimeGlibc(): string | null {
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  return header.glibcVersionRuntime ?? null;
}
