import { existsSync, readFileSync, readdirSync, statSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

interface Description {
  name: string;
  private?: boolean;
  /** Of prebuilt engines, which have no TypeScript. */
  os?: string[];
  version: string;
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
}

const readJson = (path: string): unknown => JSON.parse(readFileSync(join(root, path), "utf8"));
const folders = (readJson("package.json") as { workspaces: string[] }).workspaces;
const packages = folders.map((folder) => ({
  folder,
  ...(readJson(`${folder}/package.json`) as Description),
}));

const filesBelow = (folder: string): string[] =>
  readdirSync(join(root, folder)).flatMap((name) => {
    const path = `${folder}/${name}`;
    return statSync(join(root, path)).isDirectory() ? filesBelow(path) : [path];
  });

const sources = (folder: string) =>
  (existsSync(join(root, folder, "src")) ? filesBelow(`${folder}/src`) : []).filter(
    (path) => /\.tsx?$/u.test(path) && !path.endsWith(".generated.ts"),
  );

const linesOf = (path: string) => readFileSync(join(root, path), "utf8").split("\n").length - 1;

const importsOf = (path: string) =>
  ts
    .preProcessFile(readFileSync(join(root, path), "utf8"), true, true)
    .importedFiles.map(({ fileName }) => fileName);

const packageOf = (specifier: string) =>
  specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");

describe.each(packages)("the package $name", ({ folder, dependencies = {}, ...rest }) => {
  test("imports what its package.json declares, and nothing else of npm", () => {
    const imported = new Set(
      sources(folder)
        .flatMap(importsOf)
        .filter((specifier) => !specifier.startsWith(".") && !specifier.startsWith("node:"))
        .map(packageOf),
    );
    const undeclared = [...imported].filter((each) => dependencies[each] === undefined);
    expect(undeclared).toEqual([]);
    const unused = Object.keys(dependencies).filter(
      (each) => each.startsWith("@astra-rl/") && !imported.has(each),
    );
    expect(unused).toEqual([]);
  });

  test("reaches into no other package by a relative path", () => {
    const outside = sources(folder).flatMap((path) =>
      importsOf(path)
        .filter((specifier) => specifier.startsWith("."))
        .map((specifier) => relative(join(root, folder), join(root, dirname(path), specifier)))
        .filter((target) => target.startsWith("..")),
    );
    expect(outside).toEqual([]);
  });

  test("depends only on packages above it in the list of workspaces", () => {
    const above = packages.slice(0, folders.indexOf(folder)).map((each) => each.name);
    const ours = Object.keys(dependencies).filter((each) => packages.some((other) => other.name === each));
    expect(ours.filter((each) => !above.includes(each))).toEqual([]);
  });

  test.runIf(rest.private !== true && rest.os === undefined)(
    "is compiled with references to what it depends on",
    () => {
      const { references } = readJson(`${folder}/tsconfig.json`) as {
        references: { path: string }[];
      };
      const ours = Object.keys(dependencies).filter((each) => packages.some((other) => other.name === each));
      expect(
        references.map(({ path }) => packages.find((each) => each.folder === join(folder, path))?.name),
      ).toEqual(ours);
    },
  );

  test.runIf(rest.private !== true)("is described on one page", () => {
    const lines = linesOf(`${folder}/README.md`);
    expect(lines).toBeGreaterThan(5);
    expect(lines).toBeLessThanOrEqual(60);
  });
});

test("each command that reads configurations knows the kinds of contrib", () => {
  const commands = ["packages/astra-rl", "packages/contrib"]
    .flatMap(sources)
    .filter((path) => readFileSync(join(root, path), "utf8").includes("new Command("))
    .map((path) => ({ path, imported: importsOf(path) }))
    .filter(({ imported }) => imported.includes("@astra-rl/assembly"));
  expect(commands.length).toBeGreaterThan(5);
  const ignorant = commands.filter(
    ({ imported }) => !imported.some((each) => /^(@astra-rl\/contrib|\.\.)\/kinds(\.js)?$/u.test(each)),
  );
  expect(ignorant.map(({ path }) => path)).toEqual([]);
});

/** The engine keeps the folders of the libraries that it stands for; what is not published is read by its authors. */
const budgeted = packages
  .filter(({ name, ...rest }) => rest.private !== true && !["@astra-rl/torch", "@astra-rl/lm"].includes(name))
  .map(({ folder }) => folder);
const published = packages.filter((each) => each.private !== true).map(({ folder }) => folder);

describe("the budgets", () => {
  test("the method is what one can read in an afternoon", () => {
    const lines = sources("packages/method").reduce((sum, path) => sum + linesOf(path), 0);
    expect(lines).toBeLessThanOrEqual(13_500);
  });

  test("what reads and assembles a configuration has at most 3,000 lines", () => {
    const read = sources("packages/assembly").filter((path) =>
      /\/src\/(?:configuration|assemble)\//u.test(path),
    );
    expect(read.reduce((sum, path) => sum + linesOf(path), 0)).toBeLessThanOrEqual(3000);
  });

  test("the run folder, its checkpoints and the ranks have at most 2,200 lines", () => {
    const checkpoints = ["callbacks/checkpoint-callback", "checkpoint"];
    const paths = [
      ...sources("packages/records").filter((path) => path.includes("/src/run-folder/")),
      ...[...checkpoints, "ranks"].map((name) => `packages/method/src/training/${name}.ts`),
      ...["sampler/growth-in-shares", "tree/graph-parcel"].map((name) => `packages/method/src/${name}.ts`),
      ...["distributed", "launcher"].map((name) => `packages/torch/src/${name}.ts`),
      "packages/assembly/src/command/ranks.ts",
      "packages/astra-rl/src/commands/diagnose-ranks.ts",
    ];
    expect(paths.reduce((sum, path) => sum + linesOf(path), 0)).toBeLessThanOrEqual(2200);
  });

  test("a file has at most 400 lines", () => {
    const long = published.flatMap(sources).filter((path) => linesOf(path) > 400);
    expect(long).toEqual([]);
  });

  test("a folder beside the engine has at most 20 files", () => {
    const counts = new Map<string, number>();
    for (const path of budgeted.flatMap(sources))
      counts.set(dirname(path), (counts.get(dirname(path)) ?? 0) + 1);
    const full = [...counts].filter(([, count]) => count > 20);
    expect(full).toEqual([]);
  });

  test("no two files of a package have one name", () => {
    const doubled = published.flatMap((folder) => {
      const names = sources(folder)
        .map((path) => basename(path))
        .filter((name) => !/^index\.tsx?$/u.test(name));
      return names.filter((name, at) => names.indexOf(name) !== at).map((name) => `${folder}: ${name}`);
    });
    expect(doubled).toEqual([]);
  });

  test("the packages have one version", () => {
    expect(new Set(packages.map(({ version }) => version)).size).toBe(1);
    const asked = packages.flatMap(({ dependencies = {}, optionalDependencies = {} }) =>
      Object.entries({ ...dependencies, ...optionalDependencies }).flatMap(([name, range]) =>
        packages.some((each) => each.name === name) ? [range] : [],
      ),
    );
    expect(new Set(asked)).toEqual(new Set([packages[0]!.version]));
  });
});
