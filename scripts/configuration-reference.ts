import { formsOf, type JsonSchema } from "@astra-rl/base";
import { configurationJsonSchema } from "@astra-rl/assembly";
import "@astra-rl/contrib/kinds";

const root = configurationJsonSchema();

const HEAD =
  `# Configuration

All keys of a configuration file, generated from the schema (\`npm run schema\`); \`astra-rl init\` writes a ` +
  `file with all of them.
On the command line, set any key by \`--set section.key=value\`. Paths in a file are relative to the file, those of
the command line to the working directory. A key marked _free_ may be changed when a run is resumed; one marked _content_ may
name another file with the same content; every other one must be as it was.
`;

/** The reference of all keys, in Markdown; committed as docs/configuration.md. */
export function configurationReference(): string {
  const lines = [HEAD];
  for (const [name, section] of Object.entries(root.properties ?? {})) {
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
  const forms = section.oneOf ?? [section];
  const common = commonOf(forms);
  if (Object.keys(common.properties!).length > 0) {
    lines.push("With every `type`:", "", ...formLines(common, path, new Map()));
  }
  const shown = new Map<string, string>();
  for (const form of forms) lines.push(...formLines(withoutKeys(form, common.properties!), path, shown));
  return lines;
}

/** The keys that all of several forms have, with the same meaning. */
function commonOf(forms: readonly JsonSchema[]): JsonSchema {
  const [first, ...others] = forms.map(({ properties = {} }) => Object.entries(properties));
  const has = (entries: [string, JsonSchema][], [key, child]: [string, JsonSchema]) =>
    entries.some(([name, own]) => name === key && JSON.stringify(own) === JSON.stringify(child));
  const common = (first ?? []).filter(
    (entry) => others.length > 0 && others.every((each) => has(each, entry)),
  );
  return { properties: Object.fromEntries(common) };
}

const withoutKeys = (form: JsonSchema, left: Readonly<Record<string, JsonSchema>>): JsonSchema => ({
  ...form,
  properties: Object.fromEntries(Object.entries(form.properties ?? {}).filter(([key]) => !(key in left))),
});

/** @param shown the form that explains a key first, by the key and its schema; later forms refer to it */
function formLines(form: JsonSchema, path: readonly string[], shown: Map<string, string>): string[] {
  const { type, ...rest } = form.properties ?? {};
  const lines: string[] = [];
  const title = `\`type: ${type?.const === undefined ? "./file.js#name" : textOf(type.const)}\``;
  if (type !== undefined) lines.push(`${title}: ${type.description ?? "a custom implementation"}.`, "");
  const isRequired = (key: string) => form.required?.includes(key) ?? false;
  const references = new Map<string, string[]>();
  const entries = Object.entries(rest).filter(([key, child]) => {
    const signature = JSON.stringify([key, child, isRequired(key)]);
    const before = shown.get(signature);
    if (before === undefined) {
      shown.set(signature, title);
      return true;
    }
    const initial =
      child["default"] === undefined ? "" : ` (default \`${JSON.stringify(child["default"])}\`)`;
    references.set(before, [...(references.get(before) ?? []), `\`${[...path, key].join(".")}\`${initial}`]);
    return false;
  });
  const keys = entries.filter(([, child]) => !isSection(child) && !isSection(child.items ?? {}));
  const inside = new Map<string, string>();
  for (const [key, child] of keys) {
    const name = [...path, key].join(".");
    lines.push(keyLine(name, child, isRequired(key)));
    lines.push(...innerLines(name, child, inside));
  }
  for (const [before, names] of references) lines.push(`- As with ${before}: ${names.join(", ")}`);
  if (keys.length > 0 || references.size > 0) lines.push("");
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
 * The keys of each section that the value may be, listed once: later sections refer to the first.
 *
 * @param shown names of the sections so far, by their content
 */
function innerLines(name: string, schema: JsonSchema, shown: Map<string, string>): string[] {
  const lines: string[] = [];
  for (const form of [schema, schema.items ?? {}].flatMap(alternatives)) {
    const { type, ...properties } = form.properties ?? {};
    // Sections that select a custom kind have no keys to show.
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
  const facts = [typeOf(schema)];
  if (isRequired) facts.push("required");
  else if (schema["default"] !== undefined) facts.push(`default \`${JSON.stringify(schema["default"])}\``);
  if (schema.resume !== undefined) facts.push(`_${schema.resume}_`);
  const meaning = typeof schema.description === "string" ? `: ${schema.description}` : "";
  return `- \`${name}\` (${facts.join(", ")})${meaning}`;
}

/** What a value may be, in the notation of types. */
function typeOf(schema: JsonSchema): string {
  const simple = formsOf(schema, root).filter(
    ({ oneOf, anyOf }) => oneOf === undefined && anyOf === undefined,
  );
  return [...new Set(simple.flatMap(typesOf))].join(" | ");
}

/** The inclusive limits of a number. zod adds those of safe integers, which are not a rule of the option. */
const limitsOf = ({ minimum, maximum }: JsonSchema) => ({
  least: minimum === Number.MIN_SAFE_INTEGER ? undefined : minimum,
  most: maximum === Number.MAX_SAFE_INTEGER ? undefined : maximum,
});

function typesOf(form: JsonSchema): string[] {
  const choices = form.const === undefined ? form.enum : [form.const];
  if (choices !== undefined) return choices.map((each) => JSON.stringify(each));
  if (form.type !== "integer" && form.type !== "number") return [form.type ?? "any"];
  const { least, most } = limitsOf(form);
  const limits = Object.entries({
    ">": form.exclusiveMinimum,
    "≥": least,
    "<": form.exclusiveMaximum,
    "≤": most,
  }).filter(([, limit]) => limit !== undefined);
  return [[form.type, limits.map(([sign, limit]) => `${sign} ${limit}`).join(", ")].join(" ").trim()];
}
