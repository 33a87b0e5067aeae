/** Jinja's tests: the names after `is`. */
import { bind, required } from "./arguments.js";
import { compare, contains, equals, isNumeric, numeric, remainderOf } from "./operators.js";
import { text } from "./representation.js";
import { questions } from "./python-text.js";
import {
  Callable,
  Dict,
  DictView,
  Forbidden,
  isTrue,
  Iteration,
  Markup,
  Range,
  TemplateError,
  Undefined,
  Unsupported,
  type Value,
} from "./values.js";

type Test = (value: Value, other: Value | undefined) => boolean;

const isText = (value: Value) => typeof value === "string" || value instanceof Markup;
const isCollection = (value: Value) =>
  isText(value) ||
  Array.isArray(value) ||
  value instanceof Dict ||
  value instanceof DictView ||
  value instanceof Range;

const remainder = (value: Value, by: Value): bigint | number => {
  const [a, b] = [numeric(value), numeric(by)];
  if (value instanceof Undefined) value.fail();
  // For a text, Python's % is a format.
  if (a === null || b === null)
    throw new Unsupported("the test of a remainder on values that are not numbers");
  return remainderOf(a, b);
};
const isZero = (value: bigint | number) => value === 0 || value === 0n;

const comparison =
  (operator: string): Test =>
  (value, other) =>
    compare(operator, value, required(`the test ${operator}`, other));

const TESTS: Readonly<Record<string, Test>> = {
  boolean: (value) => typeof value === "boolean",
  // Python's undefined value has a method __call__, which fails.
  callable: (value) => value instanceof Callable || value instanceof Undefined,
  defined: (value) => !(value instanceof Undefined),
  divisibleby: (value, by) => isZero(remainder(value, required("divisibleby", by))),
  escaped: (value) => value instanceof Markup,
  even: (value) => isZero(remainder(value, 2n)),
  false: (value) => value === false,
  float: (value) => typeof value === "number",
  in: (value, container) => contains(required("in", container), value),
  integer: (value) => typeof value === "bigint",
  iterable: (value) => isCollection(value) || value instanceof Iteration || value instanceof Undefined,
  lower: (value) => questions["islower"]!(text(value)),
  mapping: (value) => value instanceof Dict,
  none: (value) => value === null,
  number: isNumeric,
  odd: (value) => equals(remainder(value, 2n), 1n),
  sameas(value, other) {
    const wanted = required("sameas", other);
    if (typeof value !== "bigint" && typeof value !== "number" && typeof value !== "string")
      return value === wanted;
    // Whether two equal numbers or texts are the same object depends on Python's memory.
    if (typeof value === typeof wanted) throw new Unsupported("the test sameas on numbers and texts");
    return false;
  },
  sequence: (value) => (isCollection(value) && !(value instanceof DictView)) || value instanceof Undefined,
  string: isText,
  true: (value) => value === true,
  undefined: (value) => value instanceof Undefined,
  upper: (value) => questions["isupper"]!(text(value)),
};

const ALIASES: Readonly<Record<string, string>> = {
  eq: "==",
  equalto: "==",
  ne: "!=",
  lt: "<",
  lessthan: "<",
  le: "<=",
  gt: ">",
  greaterthan: ">",
  ge: ">=",
};
const COMPARISONS = new Set(["==", "!=", "<", "<=", ">", ">="]);

/** @param isFilter whether a filter of that name exists, which the test `filter` asks */
export function testOf(
  name: string,
  isFilter: (name: string) => boolean,
): (value: Value, given: readonly Value[]) => boolean {
  const operator = Object.hasOwn(ALIASES, name) ? ALIASES[name]! : name;
  if (name === "filter" || name === "test") {
    return (value) => {
      const asked = text(value);
      return name === "filter"
        ? isFilter(asked)
        : Object.hasOwn(TESTS, asked) || COMPARISONS.has(asked) || Object.hasOwn(ALIASES, asked);
    };
  }
  const test = COMPARISONS.has(operator)
    ? comparison(operator)
    : Object.hasOwn(TESTS, name)
      ? TESTS[name]!
      : null;
  if (test === null) throw new TemplateError(`No test named '${name}' found.`);
  return (value, given) => {
    if (value instanceof Forbidden && name !== "defined" && name !== "undefined") value.fail();
    const [other] = bind(
      `the test ${name}`,
      { positional: given, named: new Map() },
      test.length > 1 ? ["other"] : [],
    );
    return isTrue(test(value, other));
  };
}
