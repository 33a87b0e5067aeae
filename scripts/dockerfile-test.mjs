#!/usr/bin/env node
/**
 * Tests the Dockerfile: builds it where there is a builder, else runs its steps in a folder of its own.
 *
 *   node scripts/dockerfile-test.mjs
 *
 * Without a builder, the files that COPY would take are copied, RUN steps run with the image's folders replaced by temporary
 * ones, installing Debian packages is simulated, and the entry point is called without rights, as the image's user would.
 */
import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** The instructions of a Dockerfile, continued lines joined. */
export function instructionsOf(text) {
  const lines = text.replace(/^\s*#.*\n/gm, "").replace(/\\\n\s*/g, " ");
  return lines
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const [, name, rest] = /^(\w+)\s+(.*)$/.exec(line) ?? [];
      if (name === undefined) throw new Error(`Dockerfile: cannot be read: ${line}`);
      return { name, rest };
    });
}

function run(program, args, options = {}) {
  const { status, error } = spawnSync(program, args, { stdio: "inherit", ...options });
  if (error !== undefined || status !== 0) {
    throw new Error(`${program} ${args.join(" ")} ended with ${status ?? error?.message}`);
  }
}

function build() {
  run("docker", ["build", "--tag", "astra-rl-test", root]);
  run("docker", ["run", "--rm", "astra-rl-test", "doctor"]);
}

function runSteps() {
  const image = mkdtempSync(join(tmpdir(), "astra-rl-image-"));
  chmodSync(image, 0o755);
  try {
    mkdirSync(join(image, "usr/local/bin"), { recursive: true });
    const inImage = (text) =>
      text.replace(/(\/opt\/astra-rl|\/usr\/local\/bin|\/work)(?=[/\s"]|$)/g, `${image}$1`);
    let folder = image;
    let user = "root";
    let entry = "";
    for (const { name, rest } of instructionsOf(readFileSync(join(root, "Dockerfile"), "utf8"))) {
      process.stdout.write(`Dockerfile: ${name} ${rest}\n`);
      if (name === "WORKDIR") {
        folder = inImage(rest);
        mkdirSync(folder, { recursive: true });
      } else if (name === "COPY") {
        copyTracked(folder);
      } else if (name === "RUN") {
        const packages = /apt-get install [^&]*/.exec(rest)?.[0];
        run("sh", ["-ec", packages === undefined ? inImage(rest) : `${packages} --simulate > /dev/null`], {
          cwd: folder,
        });
      } else if (name === "USER") user = rest;
      else if (name === "ENTRYPOINT") [entry] = JSON.parse(rest);
    }
    if (user === "root") throw new Error("Dockerfile: the image's user must not be root");
    const program = join(image, "usr/local/bin", entry);
    run("setpriv", ["--reuid=1000", "--regid=1000", "--clear-groups", program, "doctor"], { cwd: "/tmp" });
  } finally {
    rmSync(image, { recursive: true, force: true });
  }
}

/** What a clone holds: the image must not need what lies beside it. */
function copyTracked(folder) {
  const { stdout } = spawnSync("git", ["ls-files", "-z"], { cwd: root, encoding: "utf8" });
  for (const path of stdout.split("\0").filter(Boolean)) cpSync(join(root, path), join(folder, path));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    const hasBuilder = spawnSync("docker", ["info"], { stdio: "ignore" }).status === 0;
    process.stdout.write(
      `Dockerfile: ${hasBuilder ? "building it" : "no builder here; running its steps"}\n`,
    );
    (hasBuilder ? build : runSteps)();
    process.stdout.write("Dockerfile: passed\n");
  } catch (error) {
    process.stderr.write(`Dockerfile: ${error.message}\n`);
    process.exitCode = 1;
  }
}
