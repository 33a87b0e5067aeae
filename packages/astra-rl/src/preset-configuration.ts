import { readdirSync, readFileSync } from "node:fs";
import { dirname, relative, resolve, sep } from "node:path";
import { parseDocument, visit } from "yaml";
import { presetPath } from "@astra-rl/assembly";
import type { KindSection } from "@astra-rl/method";

export interface PresetOptions {
  /** The folder of the configuration; the preset's file paths are made relative to it. */
  folder: string;
  /** The schema reference for editors in the first line. */
  schema: string;
  /** Models that replace the preset's, as written in the file. */
  models: Readonly<Partial<Record<"tester" | "target", string>>>;
  /** A scorer that replaces the preset's. */
  scorer?: KindSection;
}

/** A preset as the text of a configuration file, including comments. */
export function presetConfiguration(name: string, { folder, schema, models, scorer }: PresetOptions): string {
  const path = presetPath(name);
  const document = parseDocument(readFileSync(path, "utf8"));
  const beside = new Set(readdirSync(dirname(path)));
  visit(document, {
    Scalar: (key, node) => {
      // A file of the package that comes with the presets.
      if (key === "key" || typeof node.value !== "string" || !beside.has(node.value)) return;
      node.value = relativePath(folder, resolve(dirname(path), node.value));
    },
  });
  for (const [role, model] of Object.entries(models)) document.setIn(["models", role], model);
  if (scorer !== undefined) document.set("scorer", document.createNode(scorer));
  const header = `# yaml-language-server: $schema=${schema}\n# Paths are relative to this file.\n`;
  return header + document.toString({ lineWidth: 0 });
}

/** The path of a file relative to `folder`. It begins with a dot, so that it is never taken for a hub model. */
export function relativePath(folder: string, path: string): string {
  const way = relative(folder, resolve(path)).split(sep).join("/");
  return way.startsWith(".") ? way : `./${way}`;
}
