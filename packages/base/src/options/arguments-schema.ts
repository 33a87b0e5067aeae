import { z } from "zod";
import { UsageError } from "../errors.js";

/**
 * Schema of the arguments of a tool's call.
 *
 * @param given a JSON Schema, of an object where it does not say otherwise
 * @throws UsageError for what is no JSON Schema, or has parts that would match anything
 */
export function argumentsSchema(given: Readonly<Record<string, unknown>>, where: string): z.ZodType {
  const schema = { type: "object", ...given };
  requireTypes(schema, where);
  try {
    return z.fromJSONSchema(schema as Parameters<typeof z.fromJSONSchema>[0]);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new UsageError("invalid-json-schema", `${where}: must be a JSON Schema: ${why}`, { cause });
  }
}

/** Keywords that are checked without a type. zod ignores all others there. */
const UNTYPED = new Set([
  "type",
  "const",
  "enum",
  "anyOf",
  "oneOf",
  "allOf",
  "not",
  "$ref",
  "$defs",
  "$schema",
]);
const ANNOTATIONS = new Set(["title", "description", "default", "examples", "$comment", "$id", "deprecated"]);

/** @throws UsageError for a part with keywords that zod ignores because the part has no type */
function requireTypes(schema: unknown, where: string): void {
  if (typeof schema !== "object" || schema === null) return;
  const given = schema as Readonly<Record<string, unknown>>;
  const ignored = Object.keys(given).find((key) => !UNTYPED.has(key) && !ANNOTATIONS.has(key));
  if (ignored !== undefined && !("type" in given)) {
    throw new UsageError(
      "untyped-schema",
      `${where}: ${ignored} needs a type beside it, such as type: string`,
    );
  }
  for (const key of ["properties", "patternProperties", "$defs"]) {
    for (const [name, part] of Object.entries(given[key] ?? {}))
      requireTypes(part, `${where}.${key}.${name}`);
  }
  for (const key of ["anyOf", "oneOf", "allOf", "prefixItems"]) {
    for (const [index, part] of ((given[key] ?? []) as unknown[]).entries()) {
      requireTypes(part, `${where}.${key}.${index}`);
    }
  }
  for (const key of ["items", "additionalProperties", "contains", "propertyNames"]) {
    requireTypes(given[key], `${where}.${key}`);
  }
}
