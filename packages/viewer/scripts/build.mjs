#!/usr/bin/env node
/**
 * Builds the page of `astra-rl report`: one HTML file with inlined script and style, dist/page/report.html of the
 * package @astra-rl/report, which inserts the records.
 *
 *   node packages/viewer/scripts/build.mjs
 */
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const made = join(root, "dist");
const target = join(root, "..", "report", "dist", "page", "report.html");

/** The page's content security policy: it may run the built script, and make no requests. */
export function policyOf(page) {
  const scripts = [...page.matchAll(/<script type="module"[^>]*>([\s\S]*?)<\/script>/g)];
  if (scripts.length !== 1) throw new Error(`the page must have one script, and has ${scripts.length}`);
  const digest = createHash("sha256").update(scripts[0][1]).digest("base64");
  return [
    "default-src 'none'",
    `script-src 'sha256-${digest}'`,
    "style-src 'unsafe-inline'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
}

await build({
  root,
  configFile: false,
  logLevel: "error",
  plugins: [viteSingleFile({ removeViteModuleLoader: true })],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { outDir: made, emptyOutDir: true, target: "es2022", reportCompressedSize: false },
});
// Formatters change white space; astra-rl looks for exactly this.
const page = readFileSync(join(made, "index.html"), "utf8").replace(
  /(<script type="application\/json" id="records">)\s*null\s*(<\/script>)/,
  "$1null$2",
);
if (!page.includes('id="records">null</script>')) throw new Error("the page has no place for the records");
const withPolicy = page.replace(
  '<meta charset="utf-8" />',
  (charset) => `${charset}\n    <meta http-equiv="Content-Security-Policy" content="${policyOf(page)}" />`,
);
if (withPolicy === page) throw new Error("the page has no charset to put its policy behind");
mkdirSync(dirname(target), { recursive: true });
// Atomic: a report may be written at the same time.
writeFileSync(`${target}.${process.pid}`, withPolicy);
renameSync(`${target}.${process.pid}`, target);
rmSync(made, { recursive: true, force: true });
