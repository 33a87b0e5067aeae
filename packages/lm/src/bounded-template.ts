import { Environment, Interpreter, parse, tokenize } from "@huggingface/jinja";
import { UsageError } from "@astra-rl/torch";
import { reason } from "./json-fields.js";
import { strftime } from "./strftime.js";

/** The part of the interpreter that is used. Its own types do not resolve in an ES module (imports without suffix). */
interface Node {
  readonly type: string;
  /** Of a filter: its name, or a call of it. */
  readonly filter?: { readonly value?: unknown; readonly callee?: { readonly value?: unknown } };
  /** Of an operation with two sides. */
  readonly operator?: { readonly value: string };
  /** Of an access: what is accessed. */
  readonly property?: { readonly type: string };
}
interface Value {
  readonly type: string;
  readonly value: unknown;
}
interface Scope {
  set(name: string, value: unknown): Value;
}
interface Evaluator {
  evaluate(node: Node | undefined, scope: Scope): Value;
}
const BaseInterpreter = Interpreter as unknown as new (scope: Scope) => Evaluator;
const newScope = () => new (Environment as unknown as new () => Scope)();

/** Characters of a template. */
export const MAXIMUM_TEMPLATE = 2 ** 18;
/** White space in a row: the parser's patterns take time quadratic in it. */
const MAXIMUM_SPACE = 4096;
/** Numbers of one `range`, as in the sandbox in which Python's transformers renders (jinja2.sandbox.MAX_RANGE). */
const MAXIMUM_RANGE = 100_000;
/** Statements and expressions inside each other, macros that call macros included; the stack holds more. */
const MAXIMUM_DEPTH = 400;
/** Characters of a text made on the way, and further ones for each character of the conversation. */
const MAXIMUM_TEXT = 2 ** 21;
const TEXT_FOR_INPUT = 4;
/** Steps for any conversation, and further ones for each step that reading its texts once takes. */
const STEPS = 500_000;
const STEPS_FOR_INPUT = 400;

/** Characters that count as one step. */
const CHARACTERS = 32;
/** Characters that count as one step where they may be taken apart, each a value of its own. */
const PIECES = 4;
/** Comparisons or copies of one character inside one call of the library that count as one step. */
const PRODUCTS = 1024;
/** What an element of a list costs: a loop makes a scope for each. */
const ELEMENT = 4;
/** What sorting costs more than reading. */
const SORTING = 16;
/** What an exception of the interpreter costs: a name that is not defined, `break`, `continue`. */
const EXCEPTION = 20;

/** A limit was reached; not the conversation's fault. */
class Limit extends Error {}

/**
 * A Jinja template whose work is bounded, whatever its author wrote: it comes with a model, from anywhere.
 *
 * Every statement and expression counts as a step, and so does, in proportion, the size of what it gives; sizes that a
 * single filter or method would multiply are counted before it runs. So equal conversations reach a limit or do not,
 * on every machine.
 */
export class BoundedTemplate {
  readonly #program: Node;
  readonly #length: number;

  /**
   * @param where file and key that the template comes from, the beginning of every message
   * @throws UsageError where it is too long or cannot be parsed
   */
  constructor(
    source: string,
    private readonly where: string,
  ) {
    this.#length = source.length;
    if (source.length > MAXIMUM_TEMPLATE) {
      throw new UsageError(
        `${where}: a chat template must have at most ${MAXIMUM_TEMPLATE} characters, but it has ${source.length}`,
      );
    }
    if (new RegExp(`\\s{${MAXIMUM_SPACE + 1}}`).test(source)) {
      throw new UsageError(
        `${where}: a chat template must have at most ${MAXIMUM_SPACE} characters of white space in a row, but it has more`,
      );
    }
    try {
      this.#program = parse(tokenize(source, { lstrip_blocks: true, trim_blocks: true })) as Node;
    } catch (cause) {
      const rule =
        cause instanceof RangeError ? "it is nested too deeply" : `it cannot be parsed: ${shortened(cause)}`;
      throw new UsageError(`${where}: must be a Jinja template, but ${rule}`, { cause });
    }
  }

  /**
   * @param variables what the template may read
   * @throws UsageError where the template refuses, fails or reaches a limit
   */
  render(variables: Readonly<Record<string, unknown>>): string {
    const scope = newScope();
    const constants = { true: true, false: false, none: null, True: true, False: false, None: null };
    try {
      const interpreter = new BoundedInterpreter(scope, this.#length);
      for (const [name, value] of Object.entries({ ...constants, ...functions, ...variables })) {
        interpreter.charge(scope.set(name, value));
      }
      interpreter.begin();
      return interpreter.evaluate(this.#program, scope).value as string;
    } catch (cause) {
      const limit =
        cause instanceof Limit
          ? cause.message
          : cause instanceof RangeError && /call stack|string length|array length/i.test(cause.message)
            ? `it needs more than the interpreter's memory: ${cause.message}`
            : null;
      if (limit !== null)
        throw new UsageError(`${this.where}: ${limit}; do not use this template`, { cause });
      throw new UsageError(`${this.where}: the template refuses this conversation: ${shortened(cause)}`, {
        cause,
      });
    }
  }
}

/** An expression or statement whose parts are being evaluated. */
interface Frame {
  readonly node: Node;
  /** Sizes of the parts so far that its own operation may multiply with each other. */
  sizes: number[] | null;
  /** Size of the string whose method or part it takes. */
  receiver: number;
}

class BoundedInterpreter extends BaseInterpreter {
  /** Infinite while the variables are charged. */
  #left = Infinity;
  /** What the variables cost, then how many steps rendering may take. */
  #steps = 0;
  #maximumText = MAXIMUM_TEXT;
  #depth = 0;
  #frame: Frame = { node: { type: "" }, sizes: null, receiver: 0 };

  constructor(
    scope: Scope,
    private readonly templateLength: number,
  ) {
    super(scope);
  }

  /** Counts a variable towards what rendering may take. */
  charge(value: Value): void {
    this.#read(value, 0);
  }

  /** Ends the charging of variables. */
  begin(): void {
    this.#maximumText += TEXT_FOR_INPUT * CHARACTERS * this.#steps;
    this.#left = this.#steps = STEPS + STEPS_FOR_INPUT * this.#steps;
  }

  override evaluate(node: Node | undefined, scope: Scope): Value {
    if (node === undefined) return super.evaluate(node, scope);
    const parent = this.#frame;
    const frame: Frame = { node, sizes: null, receiver: 0 };
    if (++this.#depth > MAXIMUM_DEPTH) {
      throw new Limit(`statements and macros may be nested at most ${MAXIMUM_DEPTH} deep, but are deeper`);
    }
    this.#spend(this.#costOf(node.type));
    this.#frame = frame;
    let value: Value | undefined;
    try {
      value = super.evaluate(node, scope);
    } finally {
      // Also where `break` or `continue` leaves a loop's body.
      this.#frame = parent;
      this.#depth--;
    }
    if (value === undefined) throw new Error("an element of an empty list is asked for");
    this.#countResult(value, frame, parent);
    return value;
  }

  #costOf(type: string): number {
    if (type === "Break" || type === "Continue") return EXCEPTION;
    // Its body is searched for names of arguments each time.
    if (type === "Macro" || type === "CallStatement") return 1 + this.templateLength / CHARACTERS;
    return 1;
  }

  #countResult(value: Value, frame: Frame, parent: Frame): void {
    const { value: held } = value;
    const { type } = parent.node;
    if (typeof held === "string") {
      if (held.length > this.#maximumText) {
        throw new Limit(
          `a text may have at most ${this.#maximumText} characters for a conversation of this length, ` +
            `but one has ${held.length}`,
        );
      }
      this.#spend(held.length / CHARACTERS);
      this.#multiply(parent, held.length);
      if (type === "MemberExpression" && parent.receiver === 0) {
        parent.receiver = held.length;
        if (parent.node.property?.type === "SliceExpression") this.#spend(held.length / PIECES);
      }
    } else if (typeof held === "number") {
      // Of a filter's arguments: how often or how far something is repeated.
      if (isFilter(parent.node)) this.#multiply(parent, parent.sizes === null ? 0 : Math.abs(held));
    } else if (typeof held === "function") {
      if (type === "CallExpression" && frame.receiver > 0) this.#call(parent, frame.receiver);
    } else if (typeof held === "object" && held !== null) {
      // A part of it is taken or its kind asked; elsewhere all of it may be read, or written out as text.
      if (type === "MemberExpression" || type === "TestExpression") this.#spend(1);
      else this.#multiply(parent, this.#read(value, 0) * CHARACTERS);
    } else if (held === undefined && frame.node.type === "Identifier") {
      this.#spend(EXCEPTION);
    }
  }

  /**
   * The operations that take time or room in the product of two sizes: filters (replace, join, indent, tojson, sort by
   * an attribute) and the search of one string in another. Of a call only the sizes are kept, for {@link #call}.
   */
  #multiply(parent: Frame, size: number): void {
    const { node } = parent;
    const filter = isFilter(node);
    if (filter) {
      const name = node.filter?.callee?.value ?? node.filter?.value;
      this.#spend((size / PIECES) * (name === "sort" || name === "dictsort" ? SORTING : 1));
    }
    const search = node.type === "BinaryExpression" && node.operator!.value.endsWith("in");
    if (filter || search) for (const other of parent.sizes ?? []) this.#spend((size * other) / PRODUCTS);
    if (filter || search || node.type === "CallExpression") (parent.sizes ??= []).push(size);
  }

  /** A string's method (replace, split, …); its arguments have been evaluated. */
  #call(parent: Frame, receiver: number): void {
    this.#spend(receiver / PIECES);
    for (const size of parent.sizes ?? []) this.#spend((size * receiver) / PRODUCTS);
  }

  /** Counts what it costs to read a value to its end, or to write it out: a part as often as it is referred to. */
  #read(value: Value, depth: number): number {
    if (depth > MAXIMUM_DEPTH) {
      throw new Limit(`lists and objects may be nested at most ${MAXIMUM_DEPTH} deep, but one is deeper`);
    }
    const { value: held } = value;
    // Written out with an indentation, it is as much wider as it is deep.
    let steps = ELEMENT + depth + (typeof held === "string" ? held.length / CHARACTERS : 0);
    this.#spend(steps);
    if (Array.isArray(held)) for (const item of held) steps += this.#read(item as Value, depth + 1);
    else if (held instanceof Map) {
      for (const [key, item] of held as Map<string, Value>) {
        const spelled = key.length / CHARACTERS;
        this.#spend(spelled);
        steps += spelled + this.#read(item, depth + 1);
      }
    }
    return steps;
  }

  #spend(steps: number): void {
    if (this.#left === Infinity) {
      this.#steps += steps;
      return;
    }
    this.#left -= steps;
    // Sizes may be infinite or NaN.
    if (this.#left >= 0) return;
    throw new Limit(
      `rendering may take ${Math.round(this.#steps)} steps for a conversation of this length, but takes more`,
    );
  }
}

function isFilter(node: Node): boolean {
  return node.type === "FilterExpression" || node.type === "FilterStatement";
}

const functions = {
  raise_exception: (message: unknown) => {
    throw new Error(typeof message === "string" ? message : "raise_exception");
  },
  range,
  strftime_now: (format: unknown) => {
    if (typeof format !== "string") throw new Error("strftime_now: the format must be a text");
    return strftime(new Date(), format);
  },
};

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

/** Messages may be made by the template: a few lines of them will do. */
function shortened(cause: unknown): string {
  const text = reason(cause);
  return text.length > 500 ? `${text.slice(0, 497)}...` : text;
}
