#!/usr/bin/env node
/**
 * The import law (docs/architecture.md). npm hoists packages, so an undeclared or a backward import would resolve;
 * this script reads every import of every package and says which break the law.
 *
 *   node scripts/check-imports.mjs [root]
 *
 * 1. Packages depend one way: torch <- lm <- astra-rl <- world; the viewer reads only the record types and the figures of astra-rl.
 * 2. Inside astra-rl the stages do not import each other, but for `system`, which is made of parts. They meet in core. `assembly`, `report`
 *    and `cli` stand above the stages; `records` stands beside core and knows core alone; `run`, the folder of a run, stands below training.
 * 3. A package imports only npm packages that its own package.json declares.
 * 4. No package reaches into another one by a relative path, and none imports a folder that stands above it.
 */
import { builtinModules } from "node:module";
import { existsSync, readFileSync, readdirSync, statSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** Which workspace packages a package may import. */
const PACKAGE_LAW = {
  torch: [],
  lm: ["@astra-rl/torch"],
  "astra-rl": ["@astra-rl/torch", "@astra-rl/lm"],
  // Makes what astra-rl ships as assets; nothing imports it.
  world: ["@astra-rl/torch", "@astra-rl/lm", "astra-rl"],
  viewer: ["astra-rl/records"],
};

const STAGES = [
  "datasets",
  "sampler",
  "tester",
  "system",
  "scorer",
  "embedder",
  "reward",
  "credit",
  "algorithm",
  "training",
  "evaluation",
];

/** Which sibling folders a folder of packages/astra-rl/src may import; "*" means all. */
const FOLDER_LAW = {
  // How options are read, for whatever takes some.
  options: [],
  core: ["options"],
  // What a configuration may choose; each stage brings its own.
  kinds: ["core"],
  records: ["core"],
  // The folder of a run, below whatever trains.
  run: ["core", "records"],
  // Words and n-grams, for whoever reads texts.
  text: [],
  ...Object.fromEntries(STAGES.map((stage) => [stage, ["core", "kinds", "options", "records", "text"]])),
  // An evaluation compares what was found, by an embedder of the package where none is given.
  evaluation: ["core", "kinds", "options", "records", "text", "embedder"],
  // Checkpoints in memory, for whatever role.
  models: ["core", "kinds"],
  tester: ["core", "options", "models"],
  // Models of servers.
  http: ["core", "kinds", "models", "options", "run", "text"],
  // What was found, for other tools.
  export: ["core", "records"],
  // Models of this machine, for others.
  serve: ["models", "options"],
  // Some scorers are models.
  scorer: ["core", "kinds", "models", "options", "text"],
  // What is trained is kept in the folder of a run.
  training: ["core", "kinds", "options", "records", "run", "text"],
  // A system is put together from parts.
  system: ["core", "options", "records", "models", "tester", "reward"],
  // What may be configured is what the stages bring.
  configuration: ["core", "http", "kinds", "models", "options", "records", "run", "text", ...STAGES],
  // Contract suites for what users write.
  testing: ["core"],
  report: ["*"],
  // A page over run folders.
  view: ["records", "report", "run", "serve"],
  // From a configuration to the objects of a run.
  assembly: ["*"],
  cli: ["*"],
};

const builtins = new Set(builtinModules);

/** The module names that a source text imports, exports from, or loads by a literal `import()`. */
export function importedNames(text) {
  const withoutComments = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
  const pattern =
    /(?:^|[\s;}])(?:import|export)\s+(?:[\w*{}\s,$]+?\s+from\s+)?["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']\s*\)/g;
  return [...withoutComments.matchAll(pattern)].map((match) => match[1] ?? match[2]);
}

function sourceFiles(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    if (statSync(path).isDirectory())
      return name === "node_modules" || name === "dist" ? [] : sourceFiles(path);
    return /\.(ts|tsx|mts|mjs|js|svelte)$/.test(name) ? [path] : [];
  });
}

const packageOf = (name) =>
  name.startsWith("@") ? name.split("/").slice(0, 2).join("/") : name.split("/")[0];

/** The folder of packages/astra-rl/src that a file lies in; "" for files in src itself. */
function folderOf(sourceRoot, file) {
  const parts = relative(sourceRoot, file).split(sep);
  return parts.length > 1 ? parts[0] : "";
}

/**
 * Every break of the law below `root`, one line each; empty when there is none.
 *
 * @param {string} root
 * @returns {string[]}
 */
export function checkImports(root) {
  const problems = [];
  const packagesFolder = join(root, "packages");
  for (const directory of readdirSync(packagesFolder)) {
    const packageRoot = join(packagesFolder, directory);
    if (!existsSync(join(packageRoot, "package.json"))) continue;
    const manifest = JSON.parse(readFileSync(join(packageRoot, "package.json"), "utf8"));
    const allowedPackages = PACKAGE_LAW[directory];
    if (allowedPackages === undefined) {
      problems.push(`packages/${directory}: the import law does not know this package`);
      continue;
    }
    const declared = new Set([
      ...Object.keys(manifest.dependencies ?? {}),
      ...Object.keys(manifest.peerDependencies ?? {}),
      ...Object.keys(manifest.optionalDependencies ?? {}),
    ]);
    for (const file of sourceFiles(join(packageRoot, "src"))) {
      for (const name of importedNames(readFileSync(file, "utf8"))) {
        const problem = name.startsWith(".")
          ? relativeProblem(packageRoot, directory, file, name)
          : packageProblem(name, manifest.name, allowedPackages, declared);
        if (problem !== null) problems.push(`${relative(root, file)}: ${problem}`);
      }
    }
  }
  return problems;
}

function packageProblem(name, self, allowedPackages, declared) {
  if (name.startsWith("node:")) return null;
  if (builtins.has(name)) return `imports "${name}"; write "node:${name}"`;
  const owner = packageOf(name);
  if (owner === self) return `imports its own package as "${name}"; use a relative path`;
  if (owner === "astra-rl" || owner.startsWith("@astra-rl/")) {
    const allowed = allowedPackages.some((path) => name === path || name.startsWith(`${path}/`));
    if (!allowed) return `imports "${name}", against the direction torch <- lm <- astra-rl <- world`;
  }
  return declared.has(owner) ? null : `imports "${name}", which its package.json does not declare`;
}

function relativeProblem(packageRoot, directory, file, name) {
  const sourceRoot = join(packageRoot, "src");
  const target = resolve(dirname(file), name);
  const inside = target.startsWith(packageRoot + sep);
  if (!inside) return `imports "${name}", which leaves its package`;
  if (directory !== "astra-rl" || !target.startsWith(sourceRoot + sep)) return null;
  const from = folderOf(sourceRoot, file);
  const to = folderOf(sourceRoot, target);
  if (from === "" || from === to) return null;
  const allowed = FOLDER_LAW[from];
  if (allowed === undefined) return `lies in src/${from}, a folder that the import law does not know`;
  if (to === "") return `imports "${name}" from above; only the outside imports src/index`;
  if (allowed.includes("*") || allowed.includes(to)) return null;
  const stages = STAGES.includes(from) && STAGES.includes(to);
  return `imports "${name}": ${from} must not know ${to}${stages ? " (stages meet in core)" : ""}`;
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const root = resolve(process.argv[2] ?? dirname(dirname(fileURLToPath(import.meta.url))));
  const problems = checkImports(root);
  for (const problem of problems) process.stderr.write(`${problem}\n`);
  process.stdout.write(
    problems.length === 0 ? "import law: kept\n" : `import law: ${problems.length} broken\n`,
  );
  process.exitCode = problems.length === 0 ? 0 : 1;
}
