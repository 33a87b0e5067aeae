import { z } from "zod";
import type { Role } from "../kinds/index.js";
import { DEFAULT_TYPES, KIND_SECTIONS } from "./registry.js";
import { COMMON_SHAPES, configurationSchema } from "./schema.js";

/** A JSON Schema document, as far as it is looked into here. */
export interface JsonSchema {
  properties?: Record<string, JsonSchema>;
  items?: JsonSchema;
  oneOf?: JsonSchema[];
  anyOf?: JsonSchema[];
  const?: unknown;
  description?: string;
  /** What a resumed run may do with the key: see `schema.ts`. */
  resume?: "free" | "content";
  /**
   * "file": the value is the path of a file that is read; "output": of one that is written; "model": a path, a hub id or the
   * name of an embedded model.
   */
  path?: "file" | "output" | "model";
  /** The role that the section is a choice for. */
  kind?: string;
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
  [keyword: string]: unknown;
}

/** The form of a section whose `type` is a module of the user's; its own options are the module's matter. */
function moduleForm(role: Role): JsonSchema {
  const common = z.toJSONSchema(z.object(COMMON_SHAPES[role] ?? {}), { io: "input" }) as JsonSchema;
  return {
    type: "object",
    properties: {
      type: {
        type: "string",
        pattern: "#",
        description: "An export of a module of your own: ./file.js#name or package#name",
      },
      ...common.properties,
    },
    required: ["type", ...((common["required"] as string[] | undefined) ?? [])],
  };
}

/** The schema of a configuration file for editors; committed as packages/astra-rl/configuration.schema.json. */
export function configurationJsonSchema(): JsonSchema {
  const schema = withNamedSections(z.toJSONSchema(configurationSchema(), { io: "input" }) as JsonSchema);
  for (const section of Object.values(schema.$defs ?? {}))
    section.oneOf!.push(moduleForm(section.kind as Role));
  for (const name of KIND_SECTIONS) {
    const forms = schema.properties![name]!.oneOf!;
    for (const form of forms) {
      if (form.properties!["type"]!.const === DEFAULT_TYPES[name]) withoutRequiredType(form);
    }
    forms.push(moduleForm(name));
  }
  schema.properties!["reward"]!.properties!["terms"]!.items!.oneOf!.push(moduleForm("term"));
  schema.properties!["logging"]!.items!.oneOf!.push(moduleForm("logger"));
  const { required = [], ...rest } = schema as JsonSchema & { required?: string[] };
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

function withoutRequiredType(form: JsonSchema): void {
  const required = (form["required"] as string[]).filter((key) => key !== "type");
  if (required.length > 0) form["required"] = required;
  else delete form["required"];
}

let cached: JsonSchema | null = null;
const rootSchema = () => (cached ??= configurationJsonSchema());

/** A schema with what it refers to. */
function resolved(schema: JsonSchema): JsonSchema {
  const { $ref, ...own } = schema;
  return $ref === undefined ? schema : { ...rootSchema().$defs![$ref.slice("#/$defs/".length)], ...own };
}

/** The forms that a value may take; of those told apart by their `type`, the value's own where it has one. */
export function formsOf(given: JsonSchema, value?: unknown): JsonSchema[] {
  const schema = resolved(given);
  const forms = [schema, ...(schema.oneOf ?? []), ...(schema.anyOf ?? [])];
  const type = typeof value === "object" && value !== null ? (value as { type?: unknown }).type : undefined;
  if (typeof type !== "string") return forms;
  const chosen = forms.filter((form) => form.properties?.["type"]?.const === type);
  return chosen.length > 0 ? chosen : forms.filter((form) => form.properties?.["type"]?.const === undefined);
}

/**
 * The keys that may stand at a path.
 *
 * @param content what is configured; without it, the keys of all the forms that a section may take
 */
export function keysAt(path: readonly PropertyKey[], content?: unknown): string[] {
  let places: JsonSchema[] = [rootSchema()];
  let value = content;
  for (const step of path) {
    places = places
      .flatMap((place) => formsOf(place, value))
      .flatMap((schema) => {
        const next = typeof step === "number" ? schema.items : schema.properties?.[String(step)];
        return next === undefined ? [] : [next];
      });
    value = (value as Record<PropertyKey, unknown> | null | undefined)?.[step];
  }
  const forms = places.flatMap((place) => formsOf(place, value));
  return [...new Set(forms.flatMap((schema) => Object.keys(schema.properties ?? {})))];
}

/** The types of the kinds at a path that have a key of this name. */
export function kindsWith(path: readonly PropertyKey[], key: string): string[] {
  let places: JsonSchema[] = [rootSchema()];
  for (const step of path) {
    places = places
      .flatMap((place) => formsOf(place))
      .flatMap((schema) => {
        const next = typeof step === "number" ? schema.items : schema.properties?.[String(step)];
        return next === undefined ? [] : [next];
      });
  }
  return places
    .flatMap((place) => formsOf(place))
    .filter((form) => form.properties?.[key] !== undefined)
    .flatMap((form) =>
      typeof form.properties?.["type"]?.const === "string" ? [form.properties["type"].const] : [],
    );
}

/** A value of a configuration that is no section, where it stands, and what the schema says of it. */
export interface Leaf {
  path: readonly (string | number)[];
  value: unknown;
  schema: JsonSchema;
}

/** Every value of a section that chooses a kind for a role, its `type` included, without the section's own name. */
export function sectionLeaves(role: string, section: unknown): Generator<Leaf> {
  return leavesOf(section, [], rootSchema().properties![role]!);
}

/** A section that chooses a kind, and the role that it is a choice for. */
export interface KindSectionPlace {
  path: readonly (string | number)[];
  role: string;
  section: Record<string, unknown>;
}

/** Every section of a configuration that chooses a kind, those inside others behind them. */
export function* sectionsOf(
  value: unknown,
  path: KindSectionPlace["path"] = [],
  schema: JsonSchema = rootSchema(),
): Generator<KindSectionPlace> {
  const { kind } = resolved(schema);
  const isSection = typeof value === "object" && value !== null && !Array.isArray(value);
  if (isSection && kind !== undefined) yield { path, role: kind, section: value as Record<string, unknown> };
  const forms = formsOf(schema, value);
  if (Array.isArray(value)) {
    const items = forms.find((form) => form.items !== undefined)?.items;
    if (items === undefined) return;
    for (const [index, item] of value.entries()) yield* sectionsOf(item, [...path, index], items);
  } else if (isSection) {
    for (const [key, item] of Object.entries(value)) {
      const child = forms.map((form) => form.properties?.[key]).find((found) => found !== undefined);
      if (child !== undefined) yield* sectionsOf(item, [...path, key], child);
    }
  }
}

/** Every value of a configuration; a list of sections or models is gone through, any other list is one value. */
export function* leavesOf(value: unknown, path: Leaf["path"] = [], schema?: JsonSchema): Generator<Leaf> {
  const here: JsonSchema = schema ?? rootSchema();
  const forms = formsOf(here, value);
  const listed = forms.find((form) => form.items !== undefined)?.items;
  const isGoneThrough = (list: readonly unknown[]) =>
    listed?.path !== undefined || list.some((item) => typeof item === "object" && item !== null);
  if (Array.isArray(value) && isGoneThrough(value)) {
    const items = inherited(here, listed);
    for (const [index, item] of value.entries()) yield* leavesOf(item, [...path, index], items);
  } else if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    for (const [key, item] of Object.entries(value)) {
      const child = forms.map((form) => form.properties?.[key]).find((found) => found !== undefined);
      yield* leavesOf(item, [...path, key], inherited(here, child));
    }
  } else {
    yield { path, value, schema: here };
  }
}

/** What holds for resuming a section or a list as a whole holds for each thing in it that says nothing of its own. */
const inherited = ({ resume }: JsonSchema, schema: JsonSchema = {}): JsonSchema =>
  resume === undefined || schema.resume !== undefined ? schema : { ...schema, resume };
