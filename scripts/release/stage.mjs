#!/usr/bin/env node
/**
 * Hands the packed packages to the registry's staging area, with provenance: nobody can install them before a maintainer has
 * approved each one there (`npm stage approve`, or on the registry's page), with a second factor. Nothing is ever published from
 * here.
 *
 *   node scripts/release/stage.mjs [--packages DIR] [--tag TAG] [--dry-run]
 *
 * Needs npm 11.15 or later; outside of a dry run also a workflow that the registry trusts, from which the provenance follows.
 */
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { PACKED, packedIn, run } from "./shared.mjs";

const { values } = parseArgs({
  options: {
    packages: { type: "string", default: PACKED },
    tag: { type: "string", default: "latest" },
    "dry-run": { type: "boolean", default: false },
  },
});
const isDry = values["dry-run"];

try {
  const packages = packedIn(resolve(values.packages));
  const versions = new Set(packages.map(({ version }) => version));
  if (versions.size !== 1)
    throw new Error(`the packages have different versions: ${[...versions].join(", ")}`);
  const [version] = versions;
  if (!isDry && process.env.GITHUB_REF !== `refs/tags/v${version}`) {
    throw new Error(
      `the packages are of version ${version}, and this is not the tag v${version}; add --dry-run to try it`,
    );
  }
  // Those first that others depend on, so that none is approved before what it needs can be.
  for (const { name, path } of packages) {
    const args = ["stage", "publish", path, "--access", "public", "--tag", values.tag];
    run("npm", [...args, isDry ? "--dry-run" : "--provenance"]);
    process.stdout.write(`stage: ${name} ${version}${isDry ? " (dry run)" : ", awaiting approval"}\n`);
  }
} catch (error) {
  process.stderr.write(`stage: ${error.message}\n`);
  process.exitCode = 1;
}
