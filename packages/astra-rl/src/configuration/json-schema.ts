import { z } from "zod";
import { configurationSchema } from "./schema.js";

/** A JSON Schema document, as far as it is looked into here. */
export interface JsonSchema {
  properties?: Record<string, JsonSchema>;
  items?: JsonSchema;
  oneOf?: JsonSchema[];
  anyOf?: JsonSchema[];
  const?: unknown;
  [keyword: string]: unknown;
}

/** The schema of a configuration file for editors; committed as packages/astra-rl/configuration.schema.json. */
export function configurationJsonSchema(): JsonSchema {
  const schema = z.toJSONSchema(configurationSchema, { io: "input" }) as JsonSchema;
  return { ...schema, title: "ASTRA-RL run configuration" };
}

/** The keys that may stand at a path, over all the forms that a section may take. */
export function keysAt(path: readonly PropertyKey[], root: JsonSchema = configurationJsonSchema()): string[] {
  let places: JsonSchema[] = [root];
  const forms = (schema: JsonSchema): JsonSchema[] => [
    schema,
    ...(schema.oneOf ?? []),
    ...(schema.anyOf ?? []),
  ];
  for (const step of path) {
    places = places.flatMap(forms).flatMap((schema) => {
      const next = typeof step === "number" ? schema.items : schema.properties?.[String(step)];
      return next === undefined ? [] : [next];
    });
  }
  return [...new Set(places.flatMap(forms).flatMap((schema) => Object.keys(schema.properties ?? {})))];
}
