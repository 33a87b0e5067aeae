import { z } from "zod";
import type { Role } from "../kinds/index.js";
import { childrenOf, formsOf, inputSchema, resolved, type JsonSchema } from "../options/index.js";
import { COMMON_SHAPES } from "./kind-schema.js";
import { DEFAULT_TYPES, KIND_SECTIONS } from "./registry.js";
import { configurationSchema } from "./schema.js";

/** The form of a section whose `type` is an export of the user's module, which checks its own options. */
function moduleForm(role: Role): JsonSchema {
  const { properties, required = [] } = inputSchema(z.object(COMMON_SHAPES[role] ?? {}));
  const type = {
    type: "string",
    pattern: "#",
    description: "An export of a module of your own: ./file.js#name or package#name",
  };
  return { type: "object", properties: { type, ...properties }, required: ["type", ...required] };
}

/** The schema of a configuration file for editors; committed as packages/astra-rl/configuration.schema.json. */
export function configurationJsonSchema(): JsonSchema {
  const schema = withNamedSections(inputSchema(configurationSchema()));
  for (const section of Object.values(schema.$defs ?? {}))
    section.oneOf!.push(moduleForm(section.kind as Role));
  for (const name of KIND_SECTIONS) {
    const forms = schema.properties![name]!.oneOf!;
    const byDefault = forms.find((form) => form.properties!["type"]!.const === DEFAULT_TYPES[name])!;
    byDefault.required = byDefault.required!.filter((key) => key !== "type");
    if (byDefault.required.length === 0) delete byDefault.required;
    forms.push(moduleForm(name));
  }
  schema.properties!["reward"]!.properties!["terms"]!.items!.oneOf!.push(moduleForm("term"));
  schema.properties!["logging"]!.items!.oneOf!.push(moduleForm("logger"));
  const { required = [], ...rest } = schema;
  const others = required.filter((key) => key !== "models");
  return {
    ...rest,
    ...(others.length === 0 ? {} : { required: others }),
    // A system of the user's may need no models.
    anyOf: [{ required: ["models"] }, { required: ["system"] }],
    title: "ASTRA-RL run configuration",
  };
}

/** Sections inside sections refer to the forms of their role, which may hold such sections again. */
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

/** A value of a configuration, its path, and what the schema says of it. */
export interface Place {
  path: readonly (string | number)[];
  value: unknown;
  schema: JsonSchema;
}

export const isSection = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Every value of a configuration, a section before what is in it. A list is gone through where it holds sections or models; any
 * other is one value.
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
    // What a resumed run may do with a section or a list holds for everything in it that says nothing itself.
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

/** Every value of a configuration that holds no others. */
export const leavesOf = (value: unknown, schema?: JsonSchema): Place[] =>
  [...placesOf(value, schema)].filter((place) => !isGoneThrough(place));

/** Every value of a section that chooses a kind for a role, its `type` included; paths begin inside the section. */
export const sectionLeaves = (role: string, section: unknown): Place[] =>
  leavesOf(section, rootSchema().properties![role]!);
