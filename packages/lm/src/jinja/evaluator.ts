/** Evaluates a template's expressions within limits on depth and size. */
import { positional } from "./arguments.js";
import { filterOf, isFilter, type Runtime } from "./filters.js";
import { LoopVariable } from "./loop.js";
import { attribute, item } from "./methods.js";
import type { CallArguments, Expression } from "./nodes.js";
import { binary, compare, negative, positive, sliced } from "./operators.js";
import { MAXIMUM_DEPTH } from "./parse-expressions.js";
import { text } from "./representation.js";
import type { Scope } from "./scope.js";
import { testOf } from "./tests.js";
import {
  Callable,
  Dict,
  isTrue,
  Limit,
  listed,
  orElse,
  TemplateError,
  tupleOf,
  typeName,
  Undefined,
  type Arguments,
  type Value,
} from "./values.js";

export class Evaluator {
  #size = 0;
  #depth = 0;

  readonly #runtime: Runtime = {
    filter: (name, value, given) => this.#counted(filterOf(name)(value, given, this.#runtime)),
    test: (name, value, given) => testOf(name, isFilter)(value, given),
  };

  /** @param maximumSize characters and elements that all expressions together may create */
  constructor(private readonly maximumSize: number) {}

  protected spend(size: number): void {
    this.#size += size;
    if (this.#size > this.maximumSize) {
      throw new Limit(`its texts and lists may have ${this.maximumSize} characters and elements in all`);
    }
  }

  #counted(value: Value): Value {
    if (typeof value === "string" || Array.isArray(value)) this.spend(value.length);
    return value;
  }

  protected nested<T>(work: () => T): T {
    if (++this.#depth > MAXIMUM_DEPTH) {
      throw new Limit(`statements and macros may be nested at most ${MAXIMUM_DEPTH} deep, but are deeper`);
    }
    const result = work();
    this.#depth--;
    return result;
  }

  evaluate(node: Expression, scope: Scope): Value {
    if (node.kind === "constant") return node.value;
    if (node.kind === "name") {
      return orElse(scope.get(node.name), () => new Undefined(`'${node.name}' is undefined`));
    }
    return this.nested(() => this.#evaluate(node, scope));
  }

  #evaluate(node: Exclude<Expression, { kind: "constant" | "name" }>, scope: Scope): Value {
    const value = (part: Expression) => this.evaluate(part, scope);
    switch (node.kind) {
      case "tuple":
        return this.#counted(tupleOf(...node.items.map(value)));
      case "list":
        return this.#counted(node.items.map(value));
      case "dict":
        this.spend(node.entries.length);
        return new Dict(node.entries.map(([key, member]) => [value(key), value(member)] as const));
      case "binary":
        return this.#counted(binary(node.operator, value(node.left), value(node.right)));
      case "concatenation":
        return this.#counted(node.parts.map((part) => text(value(part))).join(""));
      case "logic": {
        const left = value(node.left);
        return isTrue(left) === (node.operator === "and") ? value(node.right) : left;
      }
      case "unary": {
        const operand = value(node.operand);
        if (node.operator === "not") return !isTrue(operand);
        return node.operator === "-" ? negative(operand) : positive(operand);
      }
      case "comparison": {
        let left = value(node.first);
        for (const { operator, operand } of node.rest) {
          const right = value(operand);
          if (!compare(operator, left, right)) return false;
          left = right;
        }
        return true;
      }
      case "condition":
        if (isTrue(value(node.test))) return value(node.whenTrue);
        return node.whenFalse === null
          ? new Undefined("the inline if-expression evaluated to false and no else section was defined.")
          : value(node.whenFalse);
      case "attribute":
        return attribute(value(node.object), node.name);
      case "item":
        return this.#item(value(node.object), node.key, scope);
      case "slice":
        throw new TemplateError("a slice stands in brackets");
      case "call":
        return this.call(node, scope);
      case "filter":
        return this.#filter(node, node.operand === null ? "" : value(node.operand), scope);
      default:
        return testOf(node.name, isFilter)(
          value(node.operand),
          this.#arguments(node.given, scope).positional,
        );
    }
  }

  #item(object: Value, key: Expression, scope: Scope): Value {
    if (key.kind !== "slice") return item(object, this.evaluate(key, scope));
    if (object instanceof Undefined) return object.fail();
    const bound = (part: Expression | null) => (part === null ? null : this.evaluate(part, scope));
    const part = sliced(object, bound(key.start), bound(key.stop), bound(key.step));
    if (part === undefined)
      throw new TemplateError(`'${typeName(object)}' object cannot be sliced like this`);
    return this.#counted(part);
  }

  #filter(node: Extract<Expression, { kind: "filter" }>, operand: Value, scope: Scope): Value {
    return this.#runtime.filter(node.name, operand, this.#arguments(node.given, scope));
  }

  /** Applies the filters of a block to its text. */
  protected filterBlock(node: Expression, whole: string, scope: Scope): Value {
    if (node.kind !== "filter") return whole;
    const operand = node.operand === null ? whole : this.filterBlock(node.operand, whole, scope);
    return this.#filter(node, operand, scope);
  }

  /** @param caller the body of a call block */
  protected call(node: Expression, scope: Scope, caller?: Callable): Value {
    if (node.kind !== "call") throw new TemplateError("only calls have a block");
    const callee = this.evaluate(node.callee, scope);
    const given = this.#arguments(node.given, scope);
    const all =
      caller === undefined
        ? given
        : { ...given, named: new Map([...given.named, ["caller", caller as Value]]) };
    return this.#counted(this.nested(() => called(callee, all)));
  }

  #arguments(given: CallArguments, scope: Scope): Arguments {
    const value = (part: Expression) => this.evaluate(part, scope);
    if (given.named.length === 0 && given.spread === null && given.namedSpread === null) {
      return positional(...given.positional.map(value));
    }
    const all = given.positional.map(value);
    if (given.spread !== null) all.push(...listed(value(given.spread)));
    const named = new Map(given.named.map(([name, part]) => [name, value(part)]));
    if (given.namedSpread !== null) {
      const spread = value(given.namedSpread);
      if (!(spread instanceof Dict)) throw new TemplateError("the argument after ** must be a mapping");
      for (const [name, member] of spread.entries()) {
        if (typeof name !== "string") throw new TemplateError("keywords must be strings");
        if (named.has(name)) throw new TemplateError(`got multiple values for keyword argument '${name}'`);
        named.set(name, member);
      }
    }
    return { positional: all, named };
  }
}

function called(callee: Value, given: Arguments): Value {
  if (callee instanceof Undefined) return callee.fail();
  if (callee instanceof Callable) return callee.call(given);
  if (callee instanceof LoopVariable) {
    const result = callee.call(given);
    if (result !== undefined) return result;
    throw new TemplateError("The loop must have the 'recursive' marker to be called recursively.");
  }
  throw new TemplateError(`'${typeName(callee)}' object is not callable`);
}
