/** Runs a template's statements. Expressions are in evaluator.ts. */
import { bind } from "./arguments.js";
import { Evaluator } from "./evaluator.js";
import { Loop } from "./loop.js";
import { reads, type Body, type Expression, type Parameters, type Statement, type Target } from "./nodes.js";
import { text } from "./representation.js";
import { Scope } from "./scope.js";
import {
  Callable,
  Dict,
  isTrue,
  iterate,
  listed,
  Namespace,
  orElse,
  TemplateError,
  tupleOf,
  Undefined,
  type Arguments,
  type Value,
} from "./values.js";

/** How statements end: normally, or by leaving the enclosing loop. */
type Ending = "end" | "break" | "continue";

export class Interpreter extends Evaluator {
  /** The output of a whole template. */
  render(body: Body, scope: Scope): string {
    return this.#text(body, scope);
  }

  #text(body: Body, scope: Scope): string {
    const pieces: string[] = [];
    this.#run(body, scope, pieces);
    const whole = pieces.join("");
    this.spend(whole.length);
    return whole;
  }

  #run(body: Body, scope: Scope, output: string[]): Ending {
    return this.nested(() => {
      for (const statement of body) {
        const ending = this.#statement(statement, scope, output);
        if (ending !== "end") return ending;
      }
      return "end";
    });
  }

  #statement(statement: Statement, scope: Scope, output: string[]): Ending {
    const put = (piece: string) => {
      this.spend(piece.length);
      output.push(piece);
    };
    switch (statement.kind) {
      case "text":
        put(statement.text);
        return "end";
      case "output":
        put(text(this.evaluate(statement.expression, scope)));
        return "end";
      case "if":
        return this.#run(
          isTrue(this.evaluate(statement.test, scope)) ? statement.whenTrue : statement.whenFalse,
          scope,
          output,
        );
      case "for":
        return this.#for(statement, this.evaluate(statement.iterable, scope), scope, output, 0);
      case "set":
        this.#assign(statement.target, this.evaluate(statement.value, scope), scope);
        return "end";
      case "set block": {
        const whole = this.#text(statement.body, new Scope(scope));
        this.#assign(statement.target, this.#filtered(statement.filter, whole, scope), scope);
        return "end";
      }
      case "with": {
        const inner = new Scope(scope);
        // Values are read in the outer scope: one binding does not see another.
        const values = statement.bindings.map(([, value]) => this.evaluate(value, scope));
        statement.bindings.forEach(([target], index) => this.#assign(target, values[index]!, inner));
        return this.#run(statement.body, inner, output);
      }
      case "scope":
        return this.#run(statement.body, new Scope(scope), output);
      case "filter block":
        put(text(this.#filtered(statement.filter, this.#text(statement.body, new Scope(scope)), scope)));
        return "end";
      case "macro":
        scope.set(statement.name, this.#macro(statement.name, statement.parameters, statement.body, scope));
        return "end";
      case "call block": {
        const caller = this.#macro("caller", statement.parameters, statement.body, scope);
        put(text(this.call(statement.call, scope, caller)));
        return "end";
      }
      default:
        return statement.kind;
    }
  }

  /** A chain of filters that begins with a block's text. */
  #filtered(filter: Expression | null, whole: string, scope: Scope): Value {
    return filter === null ? whole : this.filterBlock(filter, whole, scope);
  }

  #assign(target: Target, value: Value, scope: Scope): void {
    if (target.kind === "name") return scope.set(target.name, value);
    if (target.kind === "attribute of namespace") {
      const namespace = scope.get(target.name);
      if (!(namespace instanceof Namespace))
        throw new TemplateError("cannot assign attribute on non-namespace object");
      namespace.attributes.set(target.attribute, value);
      return;
    }
    const values = listed(value);
    if (values.length !== target.items.length) {
      throw new TemplateError(
        values.length > target.items.length
          ? `too many values to unpack (expected ${target.items.length})`
          : `not enough values to unpack (expected ${target.items.length}, got ${values.length})`,
      );
    }
    target.items.forEach((part, index) => this.#assign(part, values[index]!, scope));
  }

  #for(
    statement: Extract<Statement, { kind: "for" }>,
    iterable: Value,
    scope: Scope,
    output: string[],
    depth: number,
  ): Ending {
    const recurse = (value: Value): string => {
      const pieces: string[] = [];
      this.nested(() => this.#for(statement, value, scope, pieces, depth + 1));
      return pieces.join("");
    };
    const loop = new Loop(
      this.#members(statement, iterable, scope),
      statement.filter === null ? iterable : null,
      depth,
      statement.isRecursive ? recurse : null,
    );
    let isEmpty = true;
    for (let member = loop.next(); member !== null; member = loop.next()) {
      this.spend(1);
      const inner = new Scope(scope);
      this.#assign(statement.target, member.value, inner);
      if (statement.readsLoop) inner.set("loop", loop.value);
      const ending = this.#run(statement.body, inner, output);
      if (ending === "break") break;
      // As in Jinja, an element counts only if its body completed: `else` runs if all were left by continue.
      if (ending === "end") isEmpty = false;
    }
    return isEmpty ? this.#run(statement.otherwise, new Scope(scope), output) : "end";
  }

  /** The elements of a loop: its condition is evaluated lazily for each. */
  *#members(statement: Extract<Statement, { kind: "for" }>, iterable: Value, scope: Scope): Generator<Value> {
    const iterator = iterate(iterable);
    for (let next = iterator.next(); next.done !== true; next = iterator.next()) {
      if (statement.filter !== null) {
        const inner = new Scope(scope);
        this.#assign(statement.target, next.value, inner);
        if (!isTrue(this.evaluate(statement.filter, inner))) continue;
      }
      yield next.value;
    }
  }

  #macro(name: string, parameters: Parameters, body: Body, scope: Scope): Callable {
    const { names, defaults } = parameters;
    const takes = {
      varargs: reads(body, "varargs"),
      kwargs: reads(body, "kwargs"),
      caller: reads(body, "caller"),
    };
    return new Callable(name, (given) => {
      const inner = new Scope(scope);
      const extra = given.positional.slice(names.length);
      if (extra.length > 0 && !takes.varargs) {
        throw new TemplateError(`macro '${name}' takes not more than ${names.length} argument(s)`);
      }
      const rest = new Map(given.named);
      const caller = names.includes("caller") ? undefined : rest.get("caller");
      if (takes.caller || caller instanceof Callable) rest.delete("caller");
      if (caller !== undefined && !takes.caller) {
        throw new TemplateError(
          `macro '${name}' was invoked with two values for the special caller argument`,
        );
      }
      const fitting: Arguments = {
        positional: given.positional.slice(0, names.length),
        named: new Map([...rest].filter(([key]) => names.includes(key))),
      };
      const others = [...rest].filter(([key]) => !names.includes(key));
      if (others.length > 0 && !takes.kwargs) {
        throw new TemplateError(`macro '${name}' takes no keyword argument '${others[0]![0]}'`);
      }
      const values = bind(`macro '${name}'`, fitting, names);
      names.forEach((parameter, index) => {
        const fallback = defaults[index - (names.length - defaults.length)];
        const missing = () =>
          fallback === undefined
            ? new Undefined(`parameter '${parameter}' was not provided`)
            : this.evaluate(fallback, inner);
        inner.set(parameter, orElse(values[index], missing));
      });
      if (takes.varargs) inner.set("varargs", tupleOf(...extra));
      if (takes.kwargs) inner.set("kwargs", new Dict(others));
      if (takes.caller)
        inner.set(
          "caller",
          orElse(caller, () => new Undefined("No caller defined")),
        );
      return this.#text(body, inner);
    });
  }
}
