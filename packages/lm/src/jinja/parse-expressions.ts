/** Jinja's expressions, with its precedences (which are not quite Python's: `**` groups from the left, filters bind tightest). */
import type { CallArguments, Expression, Target } from "./nodes.js";
import { SyntaxProblem, type Token } from "./lexer.js";

/** Maximum nesting: JavaScript's stack allows more. */
export const MAXIMUM_DEPTH = 400;

const COMPARISONS = new Set(["==", "!=", "<", "<=", ">", ">="]);
const NO_ARGUMENTS: CallArguments = { positional: [], named: [], spread: null, namedSpread: null };
const CONSTANTS: ReadonlyMap<string, null | boolean> = new Map([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
]);

export class ExpressionParser {
  #at = 0;
  #depth = 0;

  constructor(protected readonly tokens: readonly Token[]) {}

  protected get current(): Token {
    return this.tokens[this.#at]!;
  }

  protected get following(): Token {
    return this.tokens[this.#at + 1] ?? this.current;
  }

  protected next(): Token {
    const token = this.current;
    if (token.type !== "end") this.#at++;
    return token;
  }

  protected is(type: string, value?: string): boolean {
    return this.current.type === type && (value === undefined || this.current.value === value);
  }

  protected skip(type: string, value?: string): boolean {
    const isThere = this.is(type, value);
    if (isThere) this.next();
    return isThere;
  }

  protected expect(type: string, value?: string): Token {
    if (!this.is(type, value)) this.fail(`expected ${value ?? type}, got ${described(this.current)}`);
    return this.next();
  }

  protected fail(rule: string): never {
    throw new SyntaxProblem(rule, this.current.line);
  }

  protected deeper<T>(parse: () => T): T {
    if (++this.#depth > MAXIMUM_DEPTH)
      this.fail(`it is nested too deeply (more than ${MAXIMUM_DEPTH} levels)`);
    const result = parse();
    this.#depth--;
    return result;
  }

  expression(withCondition = true): Expression {
    return this.deeper(() => (withCondition ? this.#condition() : this.#or()));
  }

  #condition(): Expression {
    let node = this.#or();
    while (this.skip("name", "if")) {
      const test = this.#or();
      const whenFalse = this.skip("name", "else") ? this.deeper(() => this.#condition()) : null;
      node = { kind: "condition", test, whenTrue: node, whenFalse };
    }
    return node;
  }

  #or(): Expression {
    let left = this.#and();
    while (this.skip("name", "or")) left = { kind: "logic", operator: "or", left, right: this.#and() };
    return left;
  }

  #and(): Expression {
    let left = this.#not();
    while (this.skip("name", "and")) left = { kind: "logic", operator: "and", left, right: this.#not() };
    return left;
  }

  #not(): Expression {
    if (!this.skip("name", "not")) return this.#comparison();
    return { kind: "unary", operator: "not", operand: this.deeper(() => this.#not()) };
  }

  #comparison(): Expression {
    const first = this.#sum();
    const rest: { operator: string; operand: Expression }[] = [];
    for (;;) {
      let operator: string;
      if (COMPARISONS.has(this.current.type)) operator = this.next().type;
      else if (this.skip("name", "in")) operator = "in";
      else if (this.is("name", "not") && this.following.type === "name" && this.following.value === "in") {
        this.next();
        this.next();
        operator = "not in";
      } else break;
      rest.push({ operator, operand: this.#sum() });
    }
    return rest.length === 0 ? first : { kind: "comparison", first, rest };
  }

  #sum(): Expression {
    let left = this.#concatenation();
    while (this.is("+") || this.is("-")) {
      left = { kind: "binary", operator: this.next().type, left, right: this.#concatenation() };
    }
    return left;
  }

  #concatenation(): Expression {
    const parts = [this.#product()];
    while (this.skip("~")) parts.push(this.#product());
    return parts.length === 1 ? parts[0]! : { kind: "concatenation", parts };
  }

  #product(): Expression {
    let left = this.#power();
    while (["*", "/", "//", "%"].includes(this.current.type)) {
      left = { kind: "binary", operator: this.next().type, left, right: this.#power() };
    }
    return left;
  }

  #power(): Expression {
    let left = this.#unary(true);
    while (this.skip("**")) left = { kind: "binary", operator: "**", left, right: this.#unary(true) };
    return left;
  }

  #unary(withFilter: boolean): Expression {
    let node: Expression;
    if (this.is("-") || this.is("+")) {
      const operator = this.next().type as "-" | "+";
      node = { kind: "unary", operator, operand: this.deeper(() => this.#unary(false)) };
    } else node = this.primary();
    node = this.postfix(node);
    return withFilter ? this.#filtersAndTests(node) : node;
  }

  protected primary(): Expression {
    const token = this.next();
    switch (token.type) {
      case "name": {
        const constant = CONSTANTS.get(token.value);
        if (constant !== undefined) return { kind: "constant", value: constant };
        return { kind: "name", name: token.value };
      }
      case "string": {
        let value = token.value;
        while (this.is("string")) value += this.next().value;
        return { kind: "constant", value };
      }
      case "integer":
        return { kind: "constant", value: BigInt(token.value.replaceAll("_", "")) };
      case "float":
        return { kind: "constant", value: Number(token.value.replaceAll("_", "")) };
      case "(": {
        const inner = this.tuple({ mayBeEmpty: true });
        this.expect(")");
        return inner;
      }
      case "[": {
        const items: Expression[] = [];
        while (!this.is("]")) {
          if (items.length > 0) this.expect(",");
          if (this.is("]")) break;
          items.push(this.expression());
        }
        this.expect("]");
        return { kind: "list", items };
      }
      case "{": {
        const entries: [Expression, Expression][] = [];
        while (!this.is("}")) {
          if (entries.length > 0) this.expect(",");
          if (this.is("}")) break;
          const key = this.expression();
          this.expect(":");
          entries.push([key, this.expression()]);
        }
        this.expect("}");
        return { kind: "dict", entries };
      }
      default:
        throw new SyntaxProblem(`unexpected ${described(token)}`, token.line);
    }
  }

  /** One expression, or a tuple of several with commas. @param options.until names that terminate it */
  tuple(options: { mayBeEmpty?: boolean; withCondition?: boolean; until?: string } = {}): Expression {
    const { mayBeEmpty = false, withCondition = true, until } = options;
    const isEnd = () =>
      ["variable end", "block end", ")"].includes(this.current.type) ||
      (until !== undefined && this.is("name", until));
    const items: Expression[] = [];
    let isTuple = false;
    while (!isEnd()) {
      items.push(this.expression(withCondition));
      if (!this.skip(",")) break;
      isTuple = true;
    }
    if (isTuple) return { kind: "tuple", items };
    if (items.length > 0) return items[0]!;
    if (!mayBeEmpty) this.fail(`expected an expression, got ${described(this.current)}`);
    return { kind: "tuple", items };
  }

  protected postfix(given: Expression): Expression {
    let node = given;
    for (;;) {
      if (this.skip(".")) {
        const token = this.next();
        if (token.type === "name") node = { kind: "attribute", object: node, name: token.value };
        else if (token.type === "integer") {
          node = { kind: "item", object: node, key: { kind: "constant", value: BigInt(token.value) } };
        } else throw new SyntaxProblem(`expected name or number, got ${described(token)}`, token.line);
      } else if (this.skip("[")) {
        const keys: Expression[] = [];
        while (!this.is("]")) {
          if (keys.length > 0) this.expect(",");
          keys.push(this.#subscript());
        }
        this.expect("]");
        if (keys.length === 0) this.fail("expected subscript expression");
        node = {
          kind: "item",
          object: node,
          key: keys.length === 1 ? keys[0]! : { kind: "tuple", items: keys },
        };
      } else if (this.is("(")) node = { kind: "call", callee: node, given: this.callArguments() };
      else return node;
    }
  }

  #subscript(): Expression {
    const isEnd = () => this.is("]") || this.is(",") || this.is(":");
    const start = this.is(":") ? null : this.expression();
    if (!this.skip(":")) return start!;
    const stop = isEnd() ? null : this.expression();
    const step = this.skip(":") && !isEnd() ? this.expression() : null;
    return { kind: "slice", start, stop, step };
  }

  #filtersAndTests(given: Expression): Expression {
    let node = given;
    for (;;) {
      if (this.is("|")) node = this.filters(node);
      else if (this.is("name", "is")) node = this.#test(node);
      else if (this.is("(")) node = { kind: "call", callee: node, given: this.callArguments() };
      else return node;
    }
  }

  /** `| name(…) | …`; for a block, whose first filter has no bar. */
  protected filters(operand: Expression | null, startsWithName = false): Expression {
    let node = operand;
    for (let isFirst = startsWithName; isFirst || this.skip("|"); isFirst = false) {
      const name = this.#dotted();
      const given = this.is("(") ? this.callArguments() : NO_ARGUMENTS;
      node = { kind: "filter", operand: node, name, given };
    }
    return node!;
  }

  #dotted(): string {
    let name = this.expect("name").value;
    while (this.skip(".")) name += `.${this.expect("name").value}`;
    return name;
  }

  #test(operand: Expression): Expression {
    this.next();
    const isNegated = this.skip("name", "not");
    const name = this.#dotted();
    let given = NO_ARGUMENTS;
    if (this.is("(")) given = this.callArguments();
    else if (
      ["name", "string", "integer", "float", "[", "{"].includes(this.current.type) &&
      !["else", "or", "and"].some((word) => this.is("name", word))
    ) {
      if (this.is("name", "is")) this.fail("You cannot chain multiple tests with is");
      given = { ...NO_ARGUMENTS, positional: [this.postfix(this.primary())] };
    }
    const test: Expression = { kind: "test", operand, name, given };
    return isNegated ? { kind: "unary", operator: "not", operand: test } : test;
  }

  protected callArguments(): CallArguments {
    this.expect("(");
    const positional: Expression[] = [];
    const named: [string, Expression][] = [];
    let spread: Expression | null = null;
    let namedSpread: Expression | null = null;
    const invalid = () => this.fail("invalid syntax for function call expression");
    for (let count = 0; !this.is(")"); count++) {
      if (count > 0) this.expect(",");
      if (this.is(")")) break;
      if (this.skip("*")) {
        if (spread !== null || namedSpread !== null) invalid();
        spread = this.expression();
      } else if (this.skip("**")) {
        if (namedSpread !== null) invalid();
        namedSpread = this.expression();
      } else if (this.is("name") && this.following.type === "=") {
        if (namedSpread !== null) invalid();
        const name = this.next().value;
        this.next();
        named.push([name, this.expression()]);
      } else {
        if (spread !== null || namedSpread !== null || named.length > 0) invalid();
        positional.push(this.expression());
      }
    }
    this.expect(")");
    return { positional, named, spread, namedSpread };
  }

  /** An assignment target. */
  protected target(node: Expression, mayBeAttribute: boolean): Target {
    if (node.kind === "name") return node;
    if (node.kind === "tuple") {
      return { kind: "tuple", items: node.items.map((item) => this.target(item, mayBeAttribute)) };
    }
    if (mayBeAttribute && node.kind === "attribute" && node.object.kind === "name") {
      return { kind: "attribute of namespace", name: node.object.name, attribute: node.name };
    }
    return this.fail(`can't assign to ${node.kind}`);
  }
}

function described({ type, value }: Token): string {
  if (type === "end") return "end of template";
  return value === "" || value === type || type.endsWith(" end") ? type : `${type} '${value}'`;
}
