#!/usr/bin/env node
/**
 * Packs every published package, the prebuilt engine's among them, and writes their checksums beside them.
 *
 *   node scripts/release/pack.mjs [--output DIR]      (default: .cache/release/packages)
 *
 * The TypeScript and the page of reports must be built (npm run build), and the engine (scripts/release/build-engine.mjs).
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { PREBUILT, PUBLISHED } from "../packages.mjs";
import { CHECKSUMS, PACKED, readJson, root, run } from "./shared.mjs";

const { values } = parseArgs({ options: { output: { type: "string", default: PACKED } } });
const output = resolve(values.output);
const say = (line) => process.stdout.write(`pack: ${line}\n`);

/** Files without which a package is not whole. */
const wantedIn = (folder) =>
  PREBUILT.includes(folder)
    ? [
        "README.md",
        "LICENSE",
        ...["astra_torch.node", "preload.node", "engine.json"].map((name) => `engine/${name}`),
      ]
    : ["README.md", "LICENSE", "dist/index.js", "dist/index.d.ts"];

try {
  for (const folder of PREBUILT) {
    const file = `packages/${folder}/engine/engine.json`;
    if (!existsSync(join(root, file))) {
      throw new Error(`there is no ${file}; run node scripts/release/build-engine.mjs first`);
    }
    const [built, wanted] = [readJson(file), readJson(`packages/${folder}/package.json`)].map(
      ({ version }) => version,
    );
    if (built !== wanted)
      throw new Error(`${file} is of version ${built}, the package of ${wanted}; build it again`);
  }
  rmSync(output, { recursive: true, force: true });
  mkdirSync(output, { recursive: true });
  const folders = [...PREBUILT, ...PUBLISHED];
  const workspaces = folders.flatMap((name) => ["--workspace", `packages/${name}`]);
  const packing = ["pack", "--json", "--ignore-scripts", "--pack-destination", output, ...workspaces];
  const packed = Object.values(JSON.parse(run("npm", packing, { cwd: root })));
  const lines = folders.map((folder) => {
    const { name, version } = readJson(`packages/${folder}/package.json`);
    const { filename, files, size } = packed.find((each) => each.name === name);
    const held = files.map(({ path }) => path);
    const missing = wantedIn(folder).filter((path) => !held.includes(path));
    if (missing.length > 0) throw new Error(`${name} lacks ${missing.join(", ")}`);
    const scripts = Object.keys(readJson(`packages/${folder}/package.json`).scripts ?? {});
    const atInstallation = scripts.filter((each) => /^(pre|post)?install$|^prepare$/u.test(each));
    if (atInstallation.length > 0)
      throw new Error(`${name} has scripts that run when it is installed: ${atInstallation.join(", ")}`);
    say(`${name} ${version}, ${(size / 1000).toFixed(0)} kB`);
    const sha256 = createHash("sha256")
      .update(readFileSync(join(output, filename)))
      .digest("hex");
    return `${sha256}  ${filename}\n`;
  });
  writeFileSync(join(output, CHECKSUMS), lines.join(""));
  say(`${lines.length} packages in ${output}`);
} catch (error) {
  process.stderr.write(`pack: ${error.message}\n`);
  process.exitCode = 1;
}
