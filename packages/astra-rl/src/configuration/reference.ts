import { formsOf, ruleOf, type JsonSchema } from "../options/index.js";
import { rootSchema } from "./json-schema.js";

const HEAD = `# Configuration

Every key of a configuration file, made from the schema (\`npm run schema\`); \`astra-rl init\` writes a file with all of them.
Any key is replaced on the command line by \`--set section.key=value\`. Paths in a file are relative to the file, those of
the command line to the working directory. A key marked _free_ may be changed when a run is resumed; one marked _content_ may
name another file with the same content; every other one must be as it was.
`;

/** The reference of all keys, in Markdown; committed as docs/configuration.md. */
export function configurationReference(): string {
  const lines = [HEAD];
  for (const [name, section] of Object.entries(rootSchema().properties ?? {})) {
    lines.push(`## ${name}`, "");
    if (isSection(section)) lines.push(...sectionLines(section, []));
    else lines.push(keyLine(name, section, false), "");
  }
  return `${lines.join("\n").trimEnd()}\n`;
}

const isSection = ({ properties, oneOf }: JsonSchema) => properties !== undefined || oneOf !== undefined;

const textOf = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

function sectionLines(section: JsonSchema, path: readonly string[]): string[] {
  const lines: string[] = [];
  if (section.description !== undefined) lines.push(`${section.description}.`, "");
  for (const form of section.oneOf ?? [section]) lines.push(...formLines(form, path));
  return lines;
}

function formLines(form: JsonSchema, path: readonly string[]): string[] {
  const { type, ...rest } = form.properties ?? {};
  const lines: string[] = [];
  if (type !== undefined) {
    const name = type.const === undefined ? "./file.js#name" : textOf(type.const);
    lines.push(`\`type: ${name}\`: ${type.description ?? "one of your own"}.`, "");
  }
  const required = Array.isArray(form["required"]) ? (form["required"] as string[]) : [];
  const entries = Object.entries(rest);
  const keys = entries.filter(([, child]) => !isSection(child) && !isSection(child.items ?? {}));
  const shown = new Map<string, string>();
  for (const [key, child] of keys) {
    const name = [...path, key].join(".");
    lines.push(keyLine(name, child, required.includes(key)));
    lines.push(...innerLines(name, child, shown));
  }
  if (keys.length > 0) lines.push("");
  for (const [key, child] of entries) {
    if (keys.some(([name]) => name === key)) continue;
    const inner = isSection(child) ? child : child.items!;
    const many = isSection(child) ? "" : ", a list";
    lines.push(`${"#".repeat(Math.min(6, 3 + path.length))} ${[...path, key].join(".")}${many}`, "");
    if (many !== "" && typeof child.description === "string") lines.push(`${child.description}.`, "");
    lines.push(...sectionLines(inner, [...path, key]));
  }
  return lines;
}

/** The schemas that a value may follow; those that have a section of their own, as `$ref`s, stay closed. */
const alternatives = (schema: JsonSchema): JsonSchema[] => [
  schema,
  ...[...(schema.anyOf ?? []), ...(schema.oneOf ?? [])].flatMap(alternatives),
];

/**
 * The keys of the sections that a value may be, each section once: a later one refers to the first.
 *
 * @param shown names of the sections so far, by their content
 */
function innerLines(name: string, schema: JsonSchema, shown: Map<string, string>): string[] {
  const lines: string[] = [];
  for (const form of [schema, schema.items ?? {}].flatMap(alternatives)) {
    const { type, ...properties } = form.properties ?? {};
    // Sections that select a kind of one's own have no keys to show.
    if (form.properties === undefined || (type !== undefined && type.const === undefined)) continue;
    const which = type === undefined ? "A section" : `A section with \`type: ${textOf(type.const)}\``;
    const signature = JSON.stringify(form);
    const before = shown.get(signature);
    if (before !== undefined) lines.push(`  - ${which} has the keys of \`${before}\``);
    shown.set(signature, before ?? name);
    if (before !== undefined) continue;
    if (type !== undefined) lines.push(`  - ${which}: ${type.description ?? ""}`);
    const indent = type === undefined ? "  " : "    ";
    for (const [key, child] of Object.entries(properties)) {
      const inner = `${name}.${key}`;
      const all = [
        keyLine(inner, child, form.required?.includes(key) ?? false),
        ...innerLines(inner, child, shown),
      ];
      lines.push(...all.map((line) => `${indent}${line}`));
    }
  }
  return lines;
}

function keyLine(name: string, schema: JsonSchema, isRequired: boolean): string {
  const facts = [ruleOf(formsOf(schema, rootSchema()))];
  if (isRequired) facts.push("required");
  else if (schema["default"] !== undefined) facts.push(`default \`${JSON.stringify(schema["default"])}\``);
  if (schema.resume !== undefined) facts.push(`_${schema.resume}_`);
  const meaning = typeof schema.description === "string" ? `: ${schema.description}` : "";
  return `- \`${name}\` (${facts.join(", ")})${meaning}`;
}
