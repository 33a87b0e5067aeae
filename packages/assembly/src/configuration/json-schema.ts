import { z } from "zod";
import type { Role } from "@astra-rl/method";
import { childrenOf, formsOf, inputSchema, resolved, type JsonSchema } from "@astra-rl/base";
import { COMMON_SHAPES } from "./kind-schema.js";
import { DEFAULT_TYPES, KIND_SECTIONS } from "./registry.js";
import { configurationSchema } from "./schema.js";
import { MODULE_ROLES } from "./user-kind.js";

/** The schema of a section whose `type` is an export of a user module; the module validates its own options. */
function moduleForm(role: Role): JsonSchema {
  const { properties, required = [] } = inputSchema(z.object(COMMON_SHAPES[role] ?? {}));
  const type = {
    type: "string",
    pattern: "#",
    description: "A custom implementation, an export of a module: ./file.js#name or package#name",
  };
  return { type: "object", properties: { type, ...properties }, required: ["type", ...required] };
}

/** The JSON Schema of configuration files, for editors; committed as packages/astra-rl/configuration.schema.json. */
export function configurationJsonSchema(): JsonSchema {
  const schema = withNamedSections(inputSchema(configurationSchema()));
  const addModules = (role: Role, { oneOf: forms }: JsonSchema) => {
    if ((MODULE_ROLES as readonly Role[]).includes(role)) forms!.push(moduleForm(role));
  };
  for (const section of Object.values(schema.$defs ?? {})) addModules(section.kind as Role, section);
  for (const name of KIND_SECTIONS) {
    const forms = schema.properties![name]!.oneOf!;
    const byDefault = forms.find((form) => form.properties!["type"]!.const === DEFAULT_TYPES[name])!;
    byDefault.required = byDefault.required!.filter((key) => key !== "type");
    if (byDefault.required.length === 0) delete byDefault.required;
    addModules(name, schema.properties![name]!);
  }
  addModules("term", schema.properties!["reward"]!.properties!["terms"]!.items!);
  const { required = [], ...rest } = schema;
  const others = required.filter((key) => key !== "models");
  return {
    ...rest,
    ...(others.length === 0 ? {} : { required: others }),
    // A custom system may need no models.
    anyOf: [{ required: ["models"] }, { required: ["system"] }],
    title: "ASTRA-RL run configuration",
  };
}

/** Nested sections reference the schema of their role, which may be recursive. */
function withNamedSections(schema: JsonSchema): JsonSchema {
  let text = JSON.stringify(schema);
  for (const [name, { kind }] of Object.entries(schema.$defs ?? {})) {
    if (kind === undefined) throw new Error(`internal: the definition ${name} is no section`);
    text = text.replaceAll(`#/$defs/${name}"`, `#/$defs/${kind}"`).replace(`"${name}":`, `"${kind}":`);
  }
  return JSON.parse(text) as JsonSchema;
}

let cached: JsonSchema | null = null;
export const rootSchema = (): JsonSchema => (cached ??= configurationJsonSchema());

/** A value of a configuration, its path, and its schema. */
export interface Place {
  path: readonly (string | number)[];
  value: unknown;
  schema: JsonSchema;
}

export const isSection = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Yields every value of a configuration, sections before their contents. Lists are traversed only if they contain
 * sections or models; any other list is one value.
 */
export function* placesOf(
  value: unknown,
  schema: JsonSchema = rootSchema(),
  path: Place["path"] = [],
): Generator<Place> {
  const here = resolved(schema, rootSchema());
  yield { path, value, schema: here };
  if (!isGoneThrough({ value, schema: here, path })) return;
  const steps = Array.isArray(value) ? [...value.keys()] : Object.keys(value as object);
  const forms = formsOf(here, rootSchema(), value);
  for (const step of steps) {
    const [child = {}] = childrenOf(forms, step);
    // The `resume` mark of a section or list applies to everything in it without a mark of its own.
    const { resume = here.resume } = child;
    const item = (value as Record<PropertyKey, unknown>)[step];
    yield* placesOf(item, resume === undefined ? child : { ...child, resume }, [...path, step]);
  }
}

function isGoneThrough({ value, schema }: Place): boolean {
  if (!Array.isArray(value)) return isSection(value);
  const hasPaths = formsOf(schema, rootSchema()).some(({ items }) => items?.path !== undefined);
  return hasPaths || value.some((item) => typeof item === "object" && item !== null);
}

/** Every leaf value of a configuration. */
export const leavesOf = (value: unknown, schema?: JsonSchema): Place[] =>
  [...placesOf(value, schema)].filter((place) => !isGoneThrough(place));

/** Every leaf value of a role's section, including `type`; paths are relative to the section. */
export const sectionLeaves = (role: string, section: unknown): Place[] =>
  leavesOf(section, rootSchema().properties![role]!);
