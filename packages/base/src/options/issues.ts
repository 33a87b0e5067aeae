import type { z } from "zod";
import { describeValue, UsageError } from "../errors.js";
import { didYouMean, isSameName } from "./closest.js";

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
   * Prefix of the line, such as the class or the position in a file.
   *
   * @param isKey whether it is about the key, not its value
   * @param hidesValue whether it must not contain the value, which may be a secret
   */
  where: (path: readonly PropertyKey[], isKey: boolean, hidesValue: boolean) => string;
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

/**
 * Validates a value.
 *
 * @returns what the schema makes of it
 * @throws UsageError with a line for each mistake: position, rule, value, and the closest key or choice
 */
export function validated<T>(schema: z.ZodType<T>, given: unknown, telling: Telling): T {
  const result = schema.safeParse(given, { error: worded });
  if (result.success) return result.data;
  throw mistakesError(tellIssues(result.error.issues, given, telling), result.error);
}

/** Formats each issue lazily. */
function tellIssues(
  issues: readonly z.core.$ZodIssue[],
  given: unknown,
  { where, whole, unknownKey, advice = {} }: Telling,
): Mistake[] {
  return issues
    .flatMap((each) => closestForm(each, given))
    .flatMap((issue) => {
      const { path } = issue;
      const rule = ruleOfIssue(issue, given);
      if (issue.code === "unrecognized_keys") {
        const keys = JSON.parse(issue.message) as Keys;
        const tell = (key: string) => {
          const all = [...path, key];
          const section = valueAt(path, given) as Record<string, unknown>;
          return `${where(all, true, false)}: ${unknownKey(dotted(all))}${remedy(all, section, keys, advice)}`;
        };
        return issue.keys.map((key) => ({ rule, tell: () => tell(key) }));
      }
      const tell = () => {
        const value = valueAt(path, given);
        const required = issue.message.split("\n")[0]!;
        // A refinement of what may be a secret says so: `params: { hidesValue: true }`.
        const hidesValue = issue.code === "custom" && issue.params?.["hidesValue"] === true;
        const name = `${where(path, false, hidesValue)}: ${dotted(path) || whole}`;
        if (value === undefined && path.length > 0 && required.startsWith("must be ")) {
          return `${name} is required (${required.slice("must be ".length)})`;
        }
        // Rules across several keys include the value themselves.
        const isWhole = issue.code === "custom" && !required.startsWith("must be ");
        const got = isWhole || required.includes(", got ") ? "" : `, got ${describeValue(value)}`;
        // In the message of a union, choices are in quotes.
        const quoted = [...required.matchAll(/"([^"]+)"/gu)].map(([, choice]) => choice);
        const choices = issue.code === "invalid_value" ? issue.values : quoted;
        return `${name} ${required}${got}${didYouMean(value, choices)}`;
      };
      return [{ rule, tell }];
    });
}

/**
 * The issues of the form of a union that the value is closest to: the only one for numbers, with its keys, or else whose
 * `type` it should have.
 */
function closestForm(issue: z.core.$ZodIssue, given: unknown): z.core.$ZodIssue[] {
  if (issue.code !== "invalid_union") return [issue];
  const isNumber = typeof valueAt(issue.path, given) === "number";
  const fits = (each: z.core.$ZodIssue) => {
    if (isNumber) return each.code === "invalid_type" && NUMERIC.includes(each.expected);
    if (each.code === "unrecognized_keys") return !each.keys.includes("type");
    return each.path.length > 0 && !(each.path.length === 1 && each.path[0] === "type");
  };
  const hasType = typeof valueAt([...issue.path, "type"], given) === "string";
  const isChoice = ([first]: readonly z.core.$ZodIssue[]) =>
    first?.code === "invalid_union" && first.path[0] === "type";
  const chosen = [
    issue.errors.filter((errors) => errors.every(fits)),
    issue.errors.filter((errors) => hasType && isChoice(errors)),
  ];
  const [close] = chosen.find((forms) => forms.length === 1 && forms[0]!.length > 0) ?? [];
  if (close === undefined) return [issue];
  return close.flatMap((each) => closestForm({ ...each, path: [...issue.path, ...each.path] }, given));
}

/** The keys of a section, and those that only its other types have, with these types. */
interface Keys {
  known: readonly string[];
  elsewhere?: Readonly<Record<string, readonly string[]>>;
}

/** The message of an issue about unknown keys, which is formatted only if it is shown. */
export const keysMessage = (keys: Keys): string => JSON.stringify(keys);

const TYPES: Readonly<Record<string, string>> = {
  boolean: "true or false",
  string: "a string",
  array: "an array",
  tuple: "an array",
  object: "an object",
  record: "an object",
  null: "null",
};

/** The rule that a value breaks, such as "must be a whole number of at least 1"; for unknown keys, the known ones. */
export const worded: z.core.$ZodErrorMap = (issue) => {
  switch (issue.code) {
    case "invalid_type":
      return `must be ${requirementOf(issue, issue.expected)}`;
    case "too_small":
    case "too_big":
      return `must be ${requirementOf(issue, issue.origin)}`;
    case "invalid_value":
      return `must be ${oneOf(issue.values.map((value) => JSON.stringify(value)))}`;
    case "unrecognized_keys": {
      const { shape } = (issue.inst as z.core.$ZodObject)._zod.def;
      return keysMessage({ known: Object.keys(shape) });
    }
    case "invalid_union":
      return `must be ${oneOf([...new Set(issue.errors.flatMap(formOf))])}`;
    case "not_multiple_of":
      return `must be a multiple of ${issue.divisor}`;
    case "invalid_format":
      return issue.pattern === undefined
        ? `must be of the format ${issue.format}`
        : `must match ${issue.pattern}`;
    default:
      return undefined;
  }
};

/**
 * The first issue of what the user did not write, such as a server's answer, on one line.
 *
 * @param issue of a schema that words its issues by `worded`
 * @param whole names the whole value
 */
export function issueLine(issue: z.core.$ZodIssue, given: unknown, whole: string): string {
  const name = dotted(issue.path) || whole;
  const value = valueAt(issue.path, given);
  if (issue.code === "unrecognized_keys") return `${name}: has the unknown key ${issue.keys.join(", ")}`;
  if (value === undefined && issue.path.length > 0) return `${name}: is missing, ${issue.message}`;
  return `${name}: ${issue.message}, got ${describeValue(value)}`;
}

/** The definition of a check of zod. */
interface CheckDefinition {
  check?: string;
  format?: string;
  value?: number;
  inclusive?: boolean;
  minimum?: number;
  maximum?: number;
}

/** What the schema of an issue requires, with all of its limits; an old zod knows only the limit that is exceeded. */
function requirementOf(issue: z.core.$ZodRawIssue, type: string): string {
  const { schema, inst } = issue as { schema?: z.core.$ZodType; inst?: z.core.$ZodType };
  const definition = ((schema ?? inst)?._zod.def ?? {}) as CheckDefinition & {
    checks?: readonly { _zod: { def: CheckDefinition } }[];
  };
  const checks = [definition, ...(definition.checks ?? []).map((check) => check._zod.def)];
  if (NUMERIC.includes(type)) return numericRule(checks);
  return `${TYPES[type] ?? "something else"}${sizeOf(checks, type)}`;
}

/** Such as " that is not empty" or " of at most 8 characters". */
function sizeOf(checks: readonly CheckDefinition[], type: string): string {
  const least = Math.max(0, ...checks.map(({ minimum = 0 }) => minimum));
  const most = Math.min(Infinity, ...checks.map(({ maximum = Infinity }) => maximum));
  const unit = type === "string" ? "characters" : type === "array" ? "items" : "keys";
  if (most < Infinity) return ` of ${least > 0 ? `${least} to ${most}` : `at most ${most}`} ${unit}`;
  if (least < 2) return least === 1 ? " that is not empty" : "";
  return ` of at least ${least} ${unit}`;
}

/** Such as "a whole number of at least 1" or "between 0 and 1". */
function numericRule(checks: readonly CheckDefinition[]): string {
  const isWhole = checks.some(({ check }) => check === "number_format");
  const bound = (kind: string) => checks.find(({ check }) => check === kind);
  const [above, below] = [bound("greater_than"), bound("less_than")];
  if (above?.inclusive === true && below?.inclusive === true) {
    const [least, most] = [above.value, below.value];
    return isWhole ? `a whole number from ${least} to ${most}` : `between ${least} and ${most}`;
  }
  const limits = [
    ...(above === undefined
      ? []
      : [`${above.inclusive === true ? "at least" : "greater than"} ${above.value}`]),
    ...(below === undefined ? [] : [`${below.inclusive === true ? "at most" : "less than"} ${below.value}`]),
  ];
  if (limits.length > 1) return limits.join(" and ");
  const kind = isWhole ? "a whole number" : "a finite number";
  const limit = limits[0];
  return limit === undefined ? kind : `${kind} ${limit.startsWith("at") ? "of " : ""}${limit}`;
}

/** What a form of a union requires, without "must be ". */
function formOf([first]: readonly z.core.$ZodIssue[]): string[] {
  const rule = "must be ";
  if (first === undefined) return [];
  return [
    first.path.length === 0 && first.message.startsWith(rule)
      ? first.message.slice(rule.length)
      : "an object",
  ];
}

/** A hint for an unknown key. */
function remedy(
  path: readonly PropertyKey[],
  section: Readonly<Record<string, unknown>>,
  { known, elsewhere = {} }: Keys,
  advice: Readonly<Record<string, string>>,
): string {
  const key = String(path.at(-1));
  const instead = Object.entries(advice).find(([name]) => isSameName(name, key))?.[1];
  if (instead !== undefined) return `; ${instead}`;
  if (key === "name" && known.includes("type")) {
    return `; "type" names a kind: write type: ${describeValue(section[key])}`;
  }
  const near = didYouMean(key, known);
  if (near !== "") return near;
  const types = Object.hasOwn(elsewhere, key) ? elsewhere[key]! : [];
  if (types.length > 0) {
    const choice = `${dotted([...path.slice(0, -1), "type"])}: ${types.join(" or ")}`;
    return `; it is an option of another type than ${describeValue(section["type"])}; to use it, set ${choice}`;
  }
  return known.length === 0 ? "; none are allowed here" : `; available: ${known.join(", ")}`;
}

/** Formats `a, b or c`. */
export const oneOf = (values: readonly string[]) =>
  values.length < 2 ? values.join("") : `${values.slice(0, -1).join(", ")} or ${values.at(-1)}`;
