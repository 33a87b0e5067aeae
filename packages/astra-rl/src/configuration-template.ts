import { stringify } from "yaml";
import type { JsonSchema } from "@astra-rl/base";
import { configurationJsonSchema } from "@astra-rl/assembly";

export interface TemplateOptions {
  /** The schema reference for editors in the first line: a path or a URL. */
  schema: string;
  /** Values that override the schema's defaults, by dotted path. */
  values: Readonly<Record<string, unknown>>;
  /** Additional comments on sections, by key. */
  notes?: Readonly<Record<string, string>>;
  /** Sections without a selected kind, by key, with the kinds to list as commented-out alternatives. */
  open?: Readonly<Record<string, readonly string[]>>;
}

const WIDTH = 110;

/**
 * A configuration file with every key, its description as a comment, and its default; keys without a default are
 * commented out. Generated from the schema, so that it is always up to date.
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

/** A section without a kind, invalid until one is selected, followed by commented-out kinds with their options. */
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
  /** The section's default for this key. */
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
    // The schema does not contain a module's options.
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

/** Comments out a line of a section; lines that are already comments get a second "#". */
function commentedOut(line: string, indent: string): string {
  return `${indent}# ${line.slice(indent.length)}`;
}

/** The selected or default alternative of a section. */
function chosenForm(schema: JsonSchema, given: unknown): JsonSchema {
  if (schema.oneOf === undefined) return schema;
  const wanted = (given ?? schema.default ?? {}) as Record<string, unknown>;
  const fits = (form: JsonSchema) =>
    Object.entries(form.properties ?? {}).every(
      ([key, { const: fixed }]) => fixed === undefined || wanted[key] === fixed,
    );
  return schema.oneOf.find(fits) ?? schema.oneOf[0]!;
}

/** For example `type: keyword (file, entries)`. */
function formName(form: JsonSchema): string {
  const properties = Object.entries(form.properties ?? {});
  // A module's options are unknown.
  if (form.properties?.["type"] !== undefined && form.properties["type"].const === undefined) {
    return "type: ./file.js#name or package#name (a custom implementation)";
  }
  const fixed = properties
    .filter(([, { const: value }]) => value !== undefined)
    .map(([key, { const: value }]) => `${key}: ${String(value)}`);
  const free = properties.filter(([, { const: value }]) => value === undefined).map(([key]) => key);
  return `${fixed.join(", ")}${free.length > 0 ? ` (${free.join(", ")})` : ""}`;
}

/** The description, and the values of an enum. */
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
