import { describeValue, UsageError } from "@astra-rl/torch";
import { z } from "zod";
import { closest, isSameName } from "./closest.js";

/**
 * The options of a class or a function: checked against its schema, with the defaults filled in. `undefined` means the
 * default. The schema is the one that a configuration reads, extended by what only code can give, such as callbacks.
 *
 * @param where begins the message: the class, or what the options are of
 * @param advice what to write instead of an option that there is not, by the name that people look for
 * @throws UsageError for an option that there is not, with the nearest name, and for a value that breaks its rule
 */
export function parseOptions<S extends z.ZodObject>(
  where: string,
  schema: S,
  given: unknown,
  advice: Readonly<Record<string, string>> = {},
): z.output<S> {
  const result = schema.safeParse(given === undefined ? {} : given);
  if (result.success) return result.data;
  const form = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as Form;
  const sentences = result.error.issues.flatMap((issue) => describeIssue(issue, form, given, advice));
  throw new UsageError(sentences.map((sentence) => `${where}: ${sentence}`).join("\n"), {
    cause: result.error,
  });
}

/** An option that is a function. */
export const functionOption = <F>() =>
  z.custom<F>((value) => typeof value === "function", "must be a function");

/**
 * An option that is an object with these methods.
 *
 * @param rule what it must be, such as "must be a Scorer (an object with the method score)"
 */
export const objectOption = <T>(rule: string, ...methods: readonly (string & keyof T)[]) =>
  z.custom<T>((value) => hasMethods(value, methods), rule);

/** Whether a value is an object, or a function, with these methods. */
export function hasMethods(value: unknown, methods: readonly string[]): boolean {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  return methods.every((method) => typeof (value as Record<string, unknown>)[method] === "function");
}

/**
 * Refuses a text, or anything else that is no array, where a list is due: its characters would be taken for the items.
 *
 * @throws UsageError that shows how one item is given
 */
export function requireList(
  where: string,
  what: string,
  value: unknown,
): asserts value is readonly unknown[] {
  if (Array.isArray(value)) return;
  const advice = typeof value === "string" ? `; give one as [${describeValue(value)}]` : "";
  throw new UsageError(`${where}: ${what} must be an array, got ${describeValue(value)}${advice}`);
}

/** A path as it is written: `training.betas[0]`. */
export const dotted = (path: readonly PropertyKey[]) =>
  path
    .map((step, index) => (typeof step === "number" ? `[${step}]` : `${index > 0 ? "." : ""}${String(step)}`))
    .join("");

/** What lies at a path; undefined where the path ends before. */
export const valueAt = (path: readonly PropertyKey[], content: unknown): unknown =>
  path.reduce<unknown>(
    (value, step) => (value as Record<PropertyKey, unknown> | null | undefined)?.[step],
    content,
  );

/** As much of a JSON Schema as a rule is read from. */
interface Form {
  type?: string;
  enum?: readonly unknown[];
  const?: unknown;
  anyOf?: readonly Form[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  minItems?: number;
  properties?: Readonly<Record<string, Form>>;
  items?: Form;
  prefixItems?: readonly Form[];
}

function describeIssue(
  issue: z.core.$ZodIssue,
  form: Form,
  given: unknown,
  advice: Readonly<Record<string, string>>,
): string[] {
  const { path } = issue;
  const inside = formAt(path, form);
  const value = valueAt(path, given);
  const got = `got ${describeValue(value)}`;
  if (issue.code === "unrecognized_keys") {
    const known = Object.keys(inside.properties ?? {});
    return issue.keys.map(
      (key) => `there is no option ${dotted([...path, key])}${remedy(key, known, advice)}`,
    );
  }
  const name = dotted(path) || "the options";
  // Of a number that is wrong, what numbers may be says more than the rule of all forms.
  const hasCloser =
    issue.code === "invalid_union" && typeof value === "number" && inside.anyOf?.some(isNumber) === true;
  const isOwn = issue.message.startsWith("must be") && !hasCloser;
  if (isOwn) return [`${name} ${issue.message}${issue.message.includes(", got ") ? "" : `, ${got}`}`];
  // Rules that look at several options say themselves what they found.
  return [
    issue.code === "custom" ? `${name} ${issue.message}` : `${name} must be ${ruleOf(inside, value)}, ${got}`,
  ];
}

function remedy(key: string, known: readonly string[], advice: Readonly<Record<string, string>>): string {
  const instead = Object.entries(advice).find(([name]) => isSameName(name, key))?.[1];
  if (instead !== undefined) return `; ${instead}`;
  const near = closest(key, known);
  if (near !== null) return `; did you mean ${near}?`;
  return known.length === 0 ? "; there are none here" : `; the options are ${known.join(", ")}`;
}

function formAt(path: readonly PropertyKey[], form: Form): Form {
  let inside: Form | undefined = form;
  for (const step of path) {
    inside =
      typeof step === "number"
        ? (inside?.prefixItems?.[step] ?? inside?.items)
        : inside?.properties?.[String(step)];
  }
  return inside ?? {};
}

/** What a value must be, as the end of a sentence. */
function ruleOf(form: Form, value: unknown): string {
  if (form.anyOf !== undefined) {
    const alike = form.anyOf.filter((each) => typeof value === "number" && isNumber(each));
    return (alike.length > 0 ? alike : form.anyOf).map((each) => ruleOf(each, value)).join(" or ");
  }
  if (form.const !== undefined) return JSON.stringify(form.const);
  if (form.enum !== undefined) {
    const choices = form.enum.map((each) => (form.enum!.length > 2 ? String(each) : JSON.stringify(each)));
    return choices.length > 2 ? `one of ${choices.join(", ")}` : choices.join(" or ");
  }
  if (isNumber(form)) return numericRule(form);
  switch (form.type) {
    case "boolean":
      return "true or false";
    case "string":
      return form.minLength === undefined ? "a string" : "a string that is not empty";
    case "array":
      return form.minItems === undefined ? "an array" : "an array that is not empty";
    case "object":
      return "an object";
    case "null":
      return "null";
    default:
      return "something else";
  }
}

const isNumber = ({ type, const: only }: Form) =>
  (type === "number" || type === "integer") && only === undefined;

function numericRule({ type, minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Form): string {
  // The limits of integers that are exact are no rule of anybody's.
  const least = minimum === Number.MIN_SAFE_INTEGER ? undefined : minimum;
  const most = maximum === Number.MAX_SAFE_INTEGER ? undefined : maximum;
  const below =
    exclusiveMinimum !== undefined
      ? `greater than ${exclusiveMinimum}`
      : least === undefined
        ? null
        : `at least ${least}`;
  const above =
    exclusiveMaximum !== undefined
      ? `less than ${exclusiveMaximum}`
      : most === undefined
        ? null
        : `at most ${most}`;
  if (least !== undefined && most !== undefined)
    return type === "integer" ? `a whole number from ${least} to ${most}` : `between ${least} and ${most}`;
  if (below !== null && above !== null) return `${below} and ${above}`;
  const kind = type === "integer" ? "a whole number" : "a finite number";
  const limit = below ?? above;
  return limit === null ? kind : `${kind} ${limit.startsWith("at") ? `of ${limit}` : limit}`;
}
