import type { ResponseFormat } from "./requests.js";

/** Keys under which red-team tools expect the attacker's message. */
const MESSAGE_KEYS = ["next_message", "prompt", "message", "question"];

type Schema = Record<string, unknown> & {
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
};

/**
 * A tester's message as the JSON that a tool asks for: the message under one key, every other required value empty. A tester
 * writes messages, no JSON, so its text is never parsed.
 *
 * @param field the message's key. Default: the first known one that the schema has, else its first text
 */
export function messageAs(format: ResponseFormat | undefined, text: string, field?: string): string {
  if (format === undefined || format.type === "text") return text;
  if (format.type === "json_object") return JSON.stringify({ [field ?? MESSAGE_KEYS[0]!]: text });
  const schema = format.json_schema.schema as Schema;
  const { properties = {}, required = [] } = schema;
  const isText = (key: string) => [properties[key]?.type].flat().includes("string");
  const key =
    [field, ...MESSAGE_KEYS].find((each) => each !== undefined && isText(each)) ??
    [...required, ...Object.keys(properties)].find(isText) ??
    field ??
    MESSAGE_KEYS[0]!;
  const empty = required.filter((each) => each !== key).map((each) => [each, emptyOf(properties[each])]);
  return JSON.stringify({ [key]: text, ...(Object.fromEntries(empty) as object) });
}

function emptyOf(schema: Schema | undefined): unknown {
  if (schema === undefined) return "";
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum !== undefined) return schema.enum[0];
  switch ([schema.type].flat()[0]) {
    case "object": {
      const required = schema.required ?? [];
      return Object.fromEntries(required.map((key) => [key, emptyOf(schema.properties?.[key])]));
    }
    case "array":
      return [];
    case "number":
    case "integer":
      return 0;
    case "boolean":
      return false;
    case "null":
      return null;
    default:
      return "";
  }
}
