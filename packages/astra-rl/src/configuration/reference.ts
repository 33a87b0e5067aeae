import type { JsonSchema } from "../options/index.js";
import { configurationJsonSchema } from "./json-schema.js";

const HEAD = `# Configuration

Every key of a configuration file, made from the schema (\`npm run schema\`); \`astra-rl init\` writes a file with all of them.
Any key is replaced on the command line by \`--set section.key=value\`. Paths in a file are relative to the file, those of
the command line to the working directory. A key marked _free_ may be changed when a run is resumed; one marked _content_ may
name another file with the same content; every other one must be as it was.
`;

/** The reference of all keys as Markdown; committed as docs/configuration.md. */
export function configurationReference(): string {
  const lines = [HEAD];
  for (const [name, section] of Object.entries(configurationJsonSchema().properties ?? {})) {
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
  for (const [key, child] of keys) {
    lines.push(keyLine([...path, key].join("."), child, required.includes(key)));
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

function keyLine(name: string, schema: JsonSchema, isRequired: boolean): string {
  const facts = [kindOf(schema)];
  if (isRequired) facts.push("required");
  else if (schema["default"] !== undefined) facts.push(`default \`${JSON.stringify(schema["default"])}\``);
  if (schema.resume !== undefined) facts.push(`_${schema.resume}_`);
  const meaning = typeof schema.description === "string" ? `: ${schema.description}` : "";
  return `- \`${name}\` (${facts.join(", ")})${meaning}`;
}

/** What may stand there, with its bounds. */
function kindOf(schema: JsonSchema): string {
  const { type, minimum, exclusiveMinimum, maximum, anyOf, const: fixed } = schema;
  if (fixed !== undefined) return `\`${JSON.stringify(fixed)}\``;
  if (Array.isArray(schema["enum"]))
    return schema["enum"].map((choice) => `\`${String(choice)}\``).join(" or ");
  if (anyOf !== undefined) return anyOf.map(kindOf).join(" or ");
  const name = {
    integer: "whole number",
    number: "number",
    string: "text",
    boolean: "true or false",
    array: "list",
  };
  const word = name[type as keyof typeof name] ?? "section";
  const bounds: string[] = [];
  if (typeof minimum === "number" && minimum > -Number.MAX_SAFE_INTEGER) bounds.push(`at least ${minimum}`);
  if (typeof exclusiveMinimum === "number") bounds.push(`above ${exclusiveMinimum}`);
  const isBound = typeof maximum === "number" && maximum < Number.MAX_SAFE_INTEGER;
  if (isBound) bounds.push(`at most ${maximum}`);
  return [word, ...bounds].join(" ").replace(/ (at most)/u, bounds.length > 1 ? " and $1" : " $1");
}
