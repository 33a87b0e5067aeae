/** A JSON Schema, as far as it is read here. */
export interface JsonSchema {
  type?: string;
  enum?: readonly unknown[];
  const?: unknown;
  oneOf?: JsonSchema[];
  anyOf?: JsonSchema[];
  properties?: Record<string, JsonSchema>;
  required?: string[];
  items?: JsonSchema;
  prefixItems?: JsonSchema[];
  default?: unknown;
  description?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  minItems?: number;
  pattern?: string;
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
  /** What a resumed run may do with the value: change it, or name another file with the same content. Absent: neither. */
  resume?: "free" | "content";
  /** The value is the path of a file that is read or written; or a model: a folder, a hub id or the name of an embedded one. */
  path?: "file" | "output" | "model";
  /** The role that the section is a choice for. */
  kind?: string;
  [keyword: string]: unknown;
}

/** A schema with what it refers to. */
export function resolved(schema: JsonSchema, root: JsonSchema): JsonSchema {
  const { $ref, ...own } = schema;
  return $ref === undefined ? schema : { ...root.$defs![$ref.slice("#/$defs/".length)], ...own };
}

/** The forms that a value may take; of those told apart by their `type`, the value's own where it has one. */
export function formsOf(given: JsonSchema, root: JsonSchema, value?: unknown): JsonSchema[] {
  const schema = resolved(given, root);
  const forms = [schema, ...(schema.oneOf ?? []), ...(schema.anyOf ?? [])];
  const type = typeof value === "object" && value !== null ? (value as { type?: unknown }).type : undefined;
  if (typeof type !== "string") return forms;
  const chosen = forms.filter((form) => form.properties?.["type"]?.const === type);
  return chosen.length > 0 ? chosen : forms.filter((form) => form.properties?.["type"]?.const === undefined);
}

/** What the forms of a value say of one of its keys or places; a form that says nothing is left out. */
export const childrenOf = (forms: readonly JsonSchema[], step: PropertyKey): JsonSchema[] =>
  forms.flatMap(({ prefixItems, items, properties }) => {
    const child = typeof step === "number" ? (prefixItems?.[step] ?? items) : properties?.[String(step)];
    return child === undefined ? [] : [child];
  });

/**
 * The forms that the value at a path may take.
 *
 * @param content what is given, which decides between forms; without it, all of them
 */
export function formsAt(root: JsonSchema, path: readonly PropertyKey[], content?: unknown): JsonSchema[] {
  let forms = formsOf(root, root, content);
  let value = content;
  for (const step of path) {
    value = (value as Record<PropertyKey, unknown> | null | undefined)?.[step];
    forms = childrenOf(forms, step).flatMap((child) => formsOf(child, root, value));
  }
  return forms;
}

/** The keys that the value at a path may have. */
export const keysAt = (root: JsonSchema, path: readonly PropertyKey[], content?: unknown): string[] => [
  ...new Set(formsAt(root, path, content).flatMap(({ properties = {} }) => Object.keys(properties))),
];
