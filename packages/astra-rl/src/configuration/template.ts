import { stringify } from "yaml";
import type { JsonSchema } from "../options/index.js";
import { configurationJsonSchema } from "./json-schema.js";

export interface TemplateOptions {
  /** What the first line tells editors to check the file against: a path or a URL. */
  schema: string;
  /** Values that replace the schema's defaults, by dotted path. */
  values: Readonly<Record<string, unknown>>;
  /** Comments on sections, in addition to their descriptions, by key. */
  notes?: Readonly<Record<string, string>>;
  /** Sections whose kind is left open, by key, with the kinds that are listed to be uncommented. */
  open?: Readonly<Record<string, readonly string[]>>;
}

const WIDTH = 110;

/**
 * A configuration file with every key, its meaning as a comment, and its default; keys without a default are
 * commented out. Made from the schema, so that it cannot fall behind.
 */
export function configurationTemplate({ schema, values, notes = {}, open = {} }: TemplateOptions): string {
  const lines = [`# yaml-language-server: $schema=${schema}`, "# Paths are relative to this file."];
  const root = configurationJsonSchema();
  for (const [key, section] of Object.entries(root.properties ?? {})) {
    const note = notes[key];
    const kinds = open[key];
    lines.push(
      "",
      ...(note === undefined ? [] : comment(note, "")),
      ...(kinds === undefined
        ? entry(key, section, [key], values, root.required)
        : openSection(key, section, kinds)),
    );
  }
  return `${lines.join("\n")}\n`;
}

/** A section without its kind, which is refused until one is chosen; behind it some kinds with their options, commented out. */
function openSection(key: string, schema: JsonSchema, kinds: readonly string[]): string[] {
  const all = schema.oneOf ?? [];
  const shown = all.filter(({ properties }) => kinds.includes(String(properties?.["type"]?.const)));
  const common = Object.keys(shown[0]?.properties ?? {}).filter((name) =>
    all.every(({ properties }) => properties?.[name] !== undefined),
  );
  const optionsOf = ({ properties = {}, required }: JsonSchema, isWanted: (name: string) => boolean) =>
    Object.entries(properties)
      .filter(([name]) => isWanted(name))
      .flatMap(([name, child]) => entry(name, child, [key, name], {}, required));
  const others = all.filter((form) => !shown.includes(form)).map(formName);
  return [
    ...comment(`Other forms: ${others.join("; ")}`, ""),
    `${key}:`,
    "  type:",
    ...optionsOf(shown[0]!, (name) => name !== "type" && common.includes(name)),
    ...shown.flatMap((form) => [
      "",
      ...optionsOf(form, (name) => name === "type" || !common.includes(name)).map((line) =>
        commentedOut(line, "  "),
      ),
    ]),
  ];
}

function entry(
  key: string,
  schema: JsonSchema,
  path: readonly string[],
  values: Readonly<Record<string, unknown>>,
  required: unknown,
  /** What the section says of this key when it is left out. */
  fallback?: unknown,
): string[] {
  const indent = "  ".repeat(path.length - 1);
  const form = chosenForm(schema, values[path.join(".")]);
  const { properties } = form;
  const comments = schema.description === undefined ? [] : comment(meaning(schema), indent);
  if (properties !== undefined) {
    const inner = Object.entries(properties).flatMap(([name, child]) =>
      entry(
        name,
        child,
        [...path, name],
        values,
        form.required,
        (schema.default as Record<string, unknown> | undefined)?.[name],
      ),
    );
    // Of a module's options the schema knows nothing.
    const own = Object.entries((values[path.join(".")] ?? {}) as Record<string, unknown>).filter(
      ([name]) => properties[name] === undefined,
    );
    inner.push(...own.map(([name, value]) => `${indent}  ${name}: ${inline(value)}`));
    const others = (schema.oneOf ?? []).filter((other) => other !== form).map(formName);
    const choice = others.length > 0 ? comment(`Other forms: ${others.join("; ")}`, indent) : [];
    const section = [`${indent}${key}:`, ...inner];
    const isGiven = Object.keys(values).some((name) => name.startsWith(`${path.join(".")}.`));
    const isUsed =
      schema.default !== undefined || isGiven || (Array.isArray(required) && required.includes(key));
    return [
      ...comments,
      ...choice,
      ...(isUsed ? section : section.map((line) => commentedOut(line, indent))),
    ];
  }
  const items = schema.items?.oneOf ?? [];
  if (items.length > 0)
    comments.push(...comment(`Each is one of: ${items.map(formName).join("; ")}`, indent));
  const given = values[path.join(".")];
  const value = given ?? schema.default ?? schema.const ?? fallback;
  if (value !== undefined) return [...comments, `${indent}${key}: ${inline(value)}`];
  const isRequired = Array.isArray(required) && required.includes(key);
  return [...comments, `${indent}${isRequired ? "" : "# "}${key}:`];
}

/** A line of a section that is left out as a whole: what was commented out inside stays so. */
function commentedOut(line: string, indent: string): string {
  return `${indent}# ${line.slice(indent.length)}`;
}

/** Of a section that takes several forms, the one that is the default. */
function chosenForm(schema: JsonSchema, given: unknown): JsonSchema {
  if (schema.oneOf === undefined) return schema;
  const wanted = (given ?? schema.default ?? {}) as Record<string, unknown>;
  const fits = (form: JsonSchema) =>
    Object.entries(form.properties ?? {}).every(
      ([key, { const: fixed }]) => fixed === undefined || wanted[key] === fixed,
    );
  return schema.oneOf.find(fits) ?? schema.oneOf[0]!;
}

/** Such as `type: keyword (file, entries)`. */
function formName(form: JsonSchema): string {
  const properties = Object.entries(form.properties ?? {});
  // Of a module's options nothing is known.
  if (form.properties?.["type"] !== undefined && form.properties["type"].const === undefined) {
    return "type: ./file.js#name or package#name (a module of your own)";
  }
  const fixed = properties
    .filter(([, { const: value }]) => value !== undefined)
    .map(([key, { const: value }]) => `${key}: ${String(value)}`);
  const free = properties.filter(([, { const: value }]) => value === undefined).map(([key]) => key);
  return `${fixed.join(", ")}${free.length > 0 ? ` (${free.join(", ")})` : ""}`;
}

/** The description, and the choices of an enumeration. */
function meaning({ description, enum: choices }: JsonSchema): string {
  return Array.isArray(choices)
    ? `${String(description)}. One of ${choices.join(", ")}`
    : String(description);
}

function comment(text: string, indent: string): string[] {
  const lines: string[] = [];
  let line = `${indent}#`;
  for (const word of text.split(" ")) {
    if (line.length + word.length + 1 > WIDTH) {
      lines.push(line);
      line = `${indent}#`;
    }
    line += ` ${word}`;
  }
  return [...lines, line];
}

const inline = (value: unknown) => stringify(value, { collectionStyle: "flow", lineWidth: 0 }).trimEnd();
