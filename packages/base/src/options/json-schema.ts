/** The subset of JSON Schema that is used here. */
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
  /**
   * What a resumed run may change: "free", any value; "content", the path of a file with the same content. Absent:
   * nothing.
   */
  resume?: "free" | "content";
  /** The value is a path of an input or output file; or a model: a folder, a hub id or an embedded model's name. */
  path?: "file" | "output" | "model";
  /** The role for which the section selects a kind. */
  kind?: string;
  [keyword: string]: unknown;
}

/** A schema with its `$ref` resolved. */
export function resolved(schema: JsonSchema, root: JsonSchema): JsonSchema {
  const { $ref, ...own } = schema;
  return $ref === undefined ? schema : { ...root.$defs![$ref.slice("#/$defs/".length)], ...own };
}

/** The alternatives for a value; if they are distinguished by `type` and the value has one, only the matching one. */
export function formsOf(given: JsonSchema, root: JsonSchema, value?: unknown): JsonSchema[] {
  const within = (each: JsonSchema): JsonSchema[] => {
    const schema = resolved(each, root);
    return [schema, ...[...(schema.oneOf ?? []), ...(schema.anyOf ?? [])].flatMap(within)];
  };
  const forms = within(given);
  const type = typeof value === "object" && value !== null ? (value as { type?: unknown }).type : undefined;
  if (typeof type !== "string") return forms;
  const chosen = forms.filter((form) => form.properties?.["type"]?.const === type);
  return chosen.length > 0 ? chosen : forms.filter((form) => form.properties?.["type"]?.const === undefined);
}

/** The schemas of a key or index in the given alternatives; alternatives without one are skipped. */
export const childrenOf = (forms: readonly JsonSchema[], step: PropertyKey): JsonSchema[] =>
  forms.flatMap(({ prefixItems, items, properties }) => {
    const child = typeof step === "number" ? (prefixItems?.[step] ?? items) : properties?.[String(step)];
    return child === undefined ? [] : [child];
  });

/** The allowed keys of the value at a path, in any of its alternatives. */
export function keysAt(root: JsonSchema, path: readonly PropertyKey[]): string[] {
  let forms = formsOf(root, root);
  for (const step of path) forms = childrenOf(forms, step).flatMap((child) => formsOf(child, root));
  return [...new Set(forms.flatMap(({ properties = {} }) => Object.keys(properties)))];
}
