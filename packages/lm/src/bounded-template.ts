import { Environment, Interpreter, parse, tokenize } from "@huggingface/jinja";
import { UsageError } from "@astra-rl/torch";
import strftime from "strftime";
import { reason } from "./json-fields.js";
import { TimeLimitError, withTimeLimit } from "./time-limit.js";

/**
 * The fields of the parser's nodes used here. The library's own types do not resolve in an ES module (imports
 * without suffix).
 */
interface Node {
  readonly type: string;
  /** For a member access: the accessed name or expression. */
  readonly property?: { readonly type: string };
}
interface Value {
  readonly value: unknown;
}
interface Scope {
  set(name: string, value: unknown): Value;
}
interface Filter {
  /** Absent if it is called without arguments. */
  readonly callee?: { readonly value?: unknown };
  readonly args?: readonly Node[];
}
interface Evaluator {
  evaluate(node: Node | undefined, scope: Scope): Value | undefined;
  evaluateArguments(args: readonly Node[], scope: Scope): [readonly Value[], ReadonlyMap<string, Value>];
  applyFilter(operand: Value, filter: Filter, scope: Scope): Value;
}
const BaseInterpreter = Interpreter as unknown as new (scope: Scope) => Evaluator;
const newScope = () => new (Environment as unknown as new () => Scope)();

/** Maximum template length in characters. */
const MAXIMUM_TEMPLATE = 2 ** 18;
/**
 * Maximum number of elements of one `range`; the limit of the sandbox in which Python's transformers renders
 * (jinja2.sandbox.MAX_RANGE).
 */
const MAXIMUM_RANGE = 100_000;
/** Maximum characters by which a filter may indent: its result is made in one piece, before its size can be counted. */
const MAXIMUM_INDENT = 100;
/** Maximum nesting of statements and expressions, including macros that call macros. The stack can hold more. */
const MAXIMUM_DEPTH = 400;
/**
 * Time limit in milliseconds: a constant, plus a share per character of the variables. Real templates need a
 * hundredth of it.
 */
const TIME = 500;
const TIME_FOR_CHARACTER = 0.01;
/**
 * Maximum characters and list elements that all expressions together may create: a constant, plus a share per
 * character of the variables.
 */
const SIZE = 2 ** 23;
const SIZE_FOR_CHARACTER = 64;

/** A limit was exceeded; the conversation is not at fault. */
class Limit extends Error {}

/**
 * A Jinja template. It comes with a model and is not trusted, so its run time and the size of its values are limited,
 * both in proportion to the conversation. The memory of a single running filter is limited only by the time limit.
 */
export class BoundedTemplate {
  readonly #program: Node;

  /**
   * @param where file and key that the template comes from; starts every error message
   * @throws UsageError if the template is too long or cannot be parsed
   */
  constructor(
    source: string,
    private readonly where: string,
  ) {
    if (source.length > MAXIMUM_TEMPLATE) {
      throw new UsageError(
        `${where}: a chat template must have at most ${MAXIMUM_TEMPLATE} characters, but it has ${source.length}`,
      );
    }
    try {
      this.#program = withTimeLimit(TIME, () => {
        return parse(tokenize(source, { lstrip_blocks: true, trim_blocks: true })) as Node;
      });
    } catch (cause) {
      const rule =
        cause instanceof RangeError ? "it is nested too deeply" : `it cannot be parsed: ${shortened(cause)}`;
      throw new UsageError(`${where}: must be a Jinja template, but ${rule}`, { cause });
    }
  }

  /**
   * @param variables available to the template
   * @param date what `strftime_now` writes
   * @throws UsageError if the template refuses, fails or reaches a limit
   */
  render(variables: Readonly<Record<string, unknown>>, date = new Date()): string {
    const length = JSON.stringify(variables).length;
    const scope = newScope();
    const given = { ...globals, strftime_now: (format: unknown) => formatted(format, date), ...variables };
    for (const [name, value] of Object.entries(given)) scope.set(name, value);
    const interpreter = new BoundedInterpreter(scope, SIZE + SIZE_FOR_CHARACTER * length);
    try {
      return withTimeLimit(TIME + TIME_FOR_CHARACTER * length, () => {
        return interpreter.evaluate(this.#program, scope)!.value as string;
      });
    } catch (cause) {
      let why = `the template refuses this conversation: ${shortened(cause)}`;
      if (cause instanceof Limit || cause instanceof TimeLimitError) {
        why = `${cause.message}; do not use this template`;
      } else if (cause instanceof RangeError) {
        why = `it needs more than the interpreter's memory: ${cause.message}; do not use this template`;
      }
      throw new UsageError(`${this.where}: ${why}`, { cause });
    }
  }
}

class BoundedInterpreter extends BaseInterpreter {
  #size = 0;
  #depth = 0;

  constructor(
    scope: Scope,
    private readonly maximumSize: number,
  ) {
    super(scope);
  }

  override evaluate(node: Node | undefined, scope: Scope): Value | undefined {
    if (++this.#depth > MAXIMUM_DEPTH) {
      throw new Limit(`statements and macros may be nested at most ${MAXIMUM_DEPTH} deep, but are deeper`);
    }
    let result: Value | undefined;
    try {
      result = super.evaluate(node, scope);
    } finally {
      // Also runs if `break` or `continue` leaves a loop.
      this.#depth--;
    }
    // The library returns undefined for an element of an empty list.
    if (result === undefined) throw new Error("an element of an empty list is asked for");
    const isPart = node?.type === "MemberExpression" && node.property?.type !== "SliceExpression";
    if (isPart || node?.type === "Identifier") return result;
    const { value } = result;
    if (typeof value === "string" || Array.isArray(value)) this.#size += value.length;
    if (this.#size > this.maximumSize) {
      throw new Limit(`its texts and lists may have ${this.maximumSize} characters and elements in all`);
    }
    return result;
  }

  override applyFilter(operand: Value, filter: Filter, scope: Scope): Value {
    const { callee, args = [] } = filter;
    if (callee?.value === "tojson" || callee?.value === "indent") {
      const [given, named] = this.evaluateArguments(args, scope);
      for (const { value } of [...given, ...named.values()]) {
        if (typeof value === "number" && value > MAXIMUM_INDENT) {
          throw new Limit(`a text may be indented by at most ${MAXIMUM_INDENT} characters, not by ${value}`);
        }
      }
    }
    return super.applyFilter(operand, filter, scope);
  }
}

const globals = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  raise_exception: (message: unknown) => {
    throw new Error(typeof message === "string" ? message : "raise_exception");
  },
  range,
};

/** Always in English: the template library's own version uses the machine's locale for month names. */
function formatted(format: unknown, date: Date): string {
  if (typeof format !== "string") throw new Error("strftime_now: the format must be a text");
  return strftime(format, date);
}

/** Python's `range`. */
function range(...bounds: unknown[]): number[] {
  if (bounds.length < 1 || bounds.length > 3 || !bounds.every(Number.isSafeInteger)) {
    throw new Error("range() takes one to three integers");
  }
  const [first, second, third] = bounds as number[];
  const [start, stop] = second === undefined ? [0, first!] : [first!, second];
  const step = third ?? 1;
  if (step === 0) throw new Error("range() step must not be zero");
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (length > MAXIMUM_RANGE) {
    throw new Limit(`a range may have at most ${MAXIMUM_RANGE} numbers, but one has ${length}`);
  }
  return Array.from({ length }, (_, index) => start + index * step);
}

/** Templates may raise arbitrarily long messages: only the first lines are kept. */
function shortened(cause: unknown): string {
  const text = reason(cause);
  return text.length > 500 ? `${text.slice(0, 497)}...` : text;
}
