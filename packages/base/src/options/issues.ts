import type { z } from "zod";
import { describeValue, UsageError } from "../errors.js";
import { closest, didYouMean, isSameName } from "./closest.js";
import { formsAt, keysAt, type JsonSchema } from "./json-schema.js";

/** Formats a path, such as `training.betas[0]`. */
export const dotted = (path: readonly PropertyKey[]) =>
  path
    .map((step, index) => (typeof step === "number" ? `[${step}]` : `${index > 0 ? "." : ""}${String(step)}`))
    .join("");

/** The value at a path; undefined if the path does not exist. */
export const valueAt = (path: readonly PropertyKey[], content: unknown): unknown =>
  path.reduce<unknown>(
    (value, step) => (value as Record<PropertyKey, unknown> | null | undefined)?.[step],
    content,
  );

/** How validation errors are worded. */
export interface Telling {
  /**
   * Prefix of the line, such as the class or the position in a file. @param isKey whether it is about the key, not
   * its value
   */
  where: (path: readonly PropertyKey[], isKey: boolean) => string;
  /** Name of the root value, such as "the options". */
  whole: string;
  /** The message for an unknown key. */
  unknownKey: (key: string) => string;
  /** Hints for unknown keys, by the name that people look for. */
  advice?: Readonly<Record<string, string>>;
}

const MOST_MISTAKES = 10;
const LONGEST_MISTAKE = 500;

/** One violated rule; its line is formatted only if it is shown. */
export interface Mistake {
  rule: string;
  tell(): string;
}

/**
 * An error with the first mistakes, one per line, and the number of further ones, which are not evaluated. Its rule is
 * that of the first.
 */
export function mistakesError(mistakes: readonly Mistake[], cause?: unknown): UsageError {
  const lines = mistakes.slice(0, MOST_MISTAKES).map((mistake) => {
    const line = mistake.tell();
    return line.length > LONGEST_MISTAKE ? `${line.slice(0, LONGEST_MISTAKE - 1)}…` : line;
  });
  const rest = mistakes.length - lines.length;
  if (rest > 0) lines.push(`and ${rest} more of this kind`);
  return new UsageError(mistakes[0]!.rule, lines.join("\n"), { cause });
}

/**
 * The rule code of an issue, as `UsageError` has it. Custom issues set theirs by `params: { rule }`.
 *
 * @param given the whole value that was validated
 */
export function ruleOfIssue(issue: z.core.$ZodIssue, given: unknown): string {
  if (issue.code === "custom") return String(issue.params?.["rule"] ?? "invalid-value");
  if (issue.code === "unrecognized_keys") return "unknown-key";
  if (issue.path.length > 0 && valueAt(issue.path, given) === undefined) return "missing-key";
  if (issue.code === "invalid_union") return unionRule(issue, given);
  if (issue.code === "too_small" || issue.code === "too_big") return sizeRule(issue);
  // NaN and fractions are numbers, but not those that are allowed.
  const isNumeric = issue.code === "invalid_type" && NUMERIC.includes(issue.expected);
  if (isNumeric && typeof valueAt(issue.path, given) === "number") return "out-of-range";
  // A key or an item of a map has issues of its own.
  return "issues" in issue ? ruleOfIssue(issue.issues[0]!, given) : RULES[issue.code];
}

const RULES = {
  invalid_type: "invalid-type",
  invalid_value: "unknown-choice",
  invalid_format: "invalid-format",
  not_multiple_of: "out-of-range",
} as const;

const NUMERIC: readonly string[] = ["number", "int", "bigint", "date"];

function sizeRule(issue: z.core.$ZodIssueTooSmall | z.core.$ZodIssueTooBig): string {
  if (NUMERIC.includes(issue.origin)) return "out-of-range";
  if (issue.code === "too_big") return "too-long";
  return issue.minimum === 1 ? "empty" : "too-short";
}

/** That of the form that the value is closest to: one whose type and choice fit. */
function unionRule({ errors, path, ...issue }: z.core.$ZodIssueInvalidUnion, given: unknown): string {
  if ("discriminator" in issue) return "unknown-choice";
  const rules = errors.flatMap(([first]) =>
    first === undefined ? [] : [ruleOfIssue({ ...first, path: [...path, ...first.path] }, given)],
  );
  const isClose = (rule: string) => rule !== "invalid-type" && rule !== "unknown-choice";
  return rules.find(isClose) ?? rules.find((rule) => rule === "unknown-choice") ?? "invalid-type";
}

/** Formats each issue lazily: position, rule, value, and the closest key or choice. */
export function tellIssues(
  issues: readonly z.core.$ZodIssue[],
  root: JsonSchema,
  given: unknown,
  { where, whole, unknownKey, advice = {} }: Telling,
): Mistake[] {
  return issues.flatMap((issue) => {
    const { path } = issue;
    const rule = ruleOfIssue(issue, given);
    if (issue.code === "unrecognized_keys") {
      const tell = (key: string) => {
        const all = [...path, key];
        return `${where(all, true)}: ${unknownKey(dotted(all))}${remedy(key, path, root, given, advice)}`;
      };
      return issue.keys.map((key) => ({ rule, tell: () => tell(key) }));
    }
    const tell = () => {
      const value = valueAt(path, given);
      const required = requirement(issue, root, given);
      const name = `${where(path, false)}: ${dotted(path) || whole}`;
      if (value === undefined && path.length > 0 && required.startsWith("must be ")) {
        return `${name} is required (${required.slice("must be ".length)})`;
      }
      // Rules across several keys include the value themselves.
      const isWhole = issue.code === "custom" && !required.startsWith("must be ");
      const got = isWhole || required.includes(", got ") ? "" : `, got ${describeValue(value)}`;
      const forms = formsAt(root, path);
      return `${name} ${required}${got}${didYouMean(value, choicesOf(forms)) || sectionMeant(value, forms)}`;
    };
    return [{ rule, tell }];
  });
}

/** For the name of a kind where its section is expected, such as "detoxify" for {type: detoxify}. */
function sectionMeant(value: unknown, forms: readonly JsonSchema[]): string {
  if (typeof value !== "string") return "";
  const types = forms.flatMap(({ properties }) => {
    const { const: type } = (properties?.["type"] ?? {}) as JsonSchema;
    return typeof type === "string" ? [type] : [];
  });
  const meant = types.includes(value) ? value : closest(value, types);
  return meant === null ? "" : `; did you mean {type: ${meant}}?`;
}

/** The rule that was broken, such as "must be a whole number of at least 1". */
export function requirement(issue: z.core.$ZodIssue, root: JsonSchema, given: unknown): string {
  const { path } = issue;
  const value = valueAt(path, given);
  const forms = formsAt(root, path);
  const message = issue.message.split("\n")[0]!;
  // For an out-of-range number, the numeric rule is more helpful than the rule of all forms.
  const isCloser = issue.code === "invalid_union" && typeof value === "number" && forms.some(isNumber);
  if (issue.code === "custom" || (message.startsWith("must be ") && !isCloser)) return message;
  // The rule of the selected form is more helpful than that of all, unless the selection itself is wrong.
  const chosen = formsAt(root, path, given);
  return `must be ${ruleOf(chosen.length > 0 && path.at(-1) !== "type" ? chosen : forms, value)}`;
}

/** What a value must be, as the end of the sentence "must be …". */
function ruleOf(forms: readonly JsonSchema[], value?: unknown): string {
  const simple = forms.filter(({ oneOf, anyOf }) => oneOf === undefined && anyOf === undefined);
  const alike = typeof value === "number" ? simple.filter(isNumber) : [];
  const rules = (alike.length > 0 ? alike : simple).flatMap(rulesOf);
  return oneOf([...new Set(rules)]);
}

function rulesOf(form: JsonSchema): string[] {
  if (form.const !== undefined) return [JSON.stringify(form.const)];
  if (form.enum !== undefined) return form.enum.map((each) => JSON.stringify(each));
  if (isNumber(form)) return [numericRule(form)];
  if (form.type === "string" && form.pattern === "#") {
    return ["an export of a module such as ./file.js#name"];
  }
  const [name, isFilled] = {
    boolean: ["true or false", false] as const,
    string: ["a string", form.minLength !== undefined] as const,
    array: ["an array", form.minItems !== undefined] as const,
    object: ["an object", false] as const,
    null: ["null", false] as const,
  }[form.type ?? ""] ?? ["something else", false];
  return [isFilled ? `${name} that is not empty` : name];
}

const isNumber = ({ type, const: only }: JsonSchema) =>
  (type === "number" || type === "integer") && only === undefined;

/** The inclusive limits of a number. zod adds those of safe integers, which are not a rule of the option. */
export const limitsOf = ({ minimum, maximum }: JsonSchema) => ({
  least: minimum === Number.MIN_SAFE_INTEGER ? undefined : minimum,
  most: maximum === Number.MAX_SAFE_INTEGER ? undefined : maximum,
});

/** Such as "a whole number of at least 1" or "between 0 and 1". */
export function numericRule(form: JsonSchema): string {
  const { type, exclusiveMinimum, exclusiveMaximum } = form;
  const { least, most } = limitsOf(form);
  if (least !== undefined && most !== undefined) {
    return type === "integer" ? `a whole number from ${least} to ${most}` : `between ${least} and ${most}`;
  }
  const limits = [
    exclusiveMinimum === undefined ? null : `greater than ${exclusiveMinimum}`,
    least === undefined ? null : `at least ${least}`,
    exclusiveMaximum === undefined ? null : `less than ${exclusiveMaximum}`,
    most === undefined ? null : `at most ${most}`,
  ].filter((limit) => limit !== null);
  if (limits.length > 1) return limits.join(" and ");
  const kind = type === "integer" ? "a whole number" : "a finite number";
  const limit = limits[0];
  return limit === undefined ? kind : `${kind} ${limit.startsWith("at") ? "of " : ""}${limit}`;
}

const choicesOf = (forms: readonly JsonSchema[]) =>
  forms.flatMap(({ const: only, enum: choices = [] }) => [only, ...choices]);

/** A hint for an unknown key. */
function remedy(
  key: string,
  path: readonly PropertyKey[],
  root: JsonSchema,
  given: unknown,
  advice: Readonly<Record<string, string>>,
): string {
  const instead = Object.entries(advice).find(([name]) => isSameName(name, key))?.[1];
  if (instead !== undefined) return `; ${instead}`;
  const known = keysAt(root, path, given);
  const section = valueAt(path, given) as Record<string, unknown> | undefined;
  if (key === "name" && known.includes("type")) {
    return `; "type" names a kind: write type: ${describeValue(section?.[key])}`;
  }
  const near = didYouMean(key, known);
  if (near !== "") return near;
  const owners = formsAt(root, path).filter(({ properties }) => properties?.[key] !== undefined);
  const types = owners.flatMap(({ properties }) => properties!["type"]?.const ?? []);
  if (types.length > 0) {
    const choice = `${dotted([...path, "type"])}: ${types.map(String).join(" or ")}`;
    return `; it is an option of another type than ${describeValue(section?.["type"])}; to use it, set ${choice}`;
  }
  return known.length === 0 ? "; none are allowed here" : `; available: ${known.join(", ")}`;
}

/** Formats `a, b or c`. */
export const oneOf = (values: readonly string[]) =>
  values.length < 2 ? values.join("") : `${values.slice(0, -1).join(", ")} or ${values.at(-1)}`;
