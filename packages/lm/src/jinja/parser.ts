/** Jinja's statements, with the extensions that transformers adds: break, continue and generation. */
import { tokenize } from "./lexer.js";
import { reads, type Body, type Expression, type Parameters, type Statement, type Target } from "./nodes.js";
import { ExpressionParser } from "./parse-expressions.js";
import { Unsupported } from "./values.js";

/**
 * The syntax tree of a template.
 *
 * @throws SyntaxProblem with the line
 */
export function parse(source: string): Body {
  return new Parser(tokenize(source)).template();
}

const NO_PARAMETERS: Parameters = { names: [], defaults: [] };
/** Statements of Jinja that need other templates or escaping. */
const UNSUPPORTED = new Set(["extends", "include", "import", "from", "autoescape", "trans"]);

class Parser extends ExpressionParser {
  /** Tags that end the enclosing statements, innermost last. */
  readonly #ends: string[][] = [];
  #loops = 0;

  template(): Body {
    return this.#statements([]);
  }

  /** Statements up to one of the tags `ends`, whose name is not consumed. */
  #statements(ends: string[]): Body {
    const body: Statement[] = [];
    this.#ends.push(ends);
    for (;;) {
      if (this.is("end")) {
        if (ends.length > 0) {
          this.fail(`unexpected end of template, expected ${ends.map((end) => `'${end}'`).join(" or ")}`);
        }
        break;
      }
      if (this.is("data")) body.push({ kind: "text", text: this.next().value });
      else if (this.skip("variable begin")) {
        body.push({ kind: "output", expression: this.tuple() });
        this.expect("variable end");
      } else {
        this.expect("block begin");
        if (this.is("name") && ends.includes(this.current.value)) break;
        body.push(this.deeper(() => this.#statement()));
        this.expect("block end");
      }
    }
    this.#ends.pop();
    return body;
  }

  /** The body of a block up to its end, which is consumed. */
  #body(end: string): Body {
    this.expect("block end");
    const body = this.#statements([end]);
    this.expect("name", end);
    return body;
  }

  #statement(): Statement {
    const { value: tag } = this.expect("name");
    switch (tag) {
      case "set":
        return this.#set();
      case "if":
        return this.#if();
      case "for":
        return this.#for();
      case "macro": {
        const name = this.expect("name").value;
        const parameters = this.#parameters();
        return { kind: "macro", name, parameters, body: this.#inFunction(() => this.#body("endmacro")) };
      }
      case "call": {
        const parameters = this.is("(") ? this.#parameters() : NO_PARAMETERS;
        const call = this.expression();
        if (call.kind !== "call") this.fail("expected call");
        return { kind: "call block", call, parameters, body: this.#inFunction(() => this.#body("endcall")) };
      }
      case "filter": {
        const filter = this.filters(null, true);
        return { kind: "filter block", filter, body: this.#body("endfilter") };
      }
      case "with":
        return this.#with();
      case "generation":
        return { kind: "scope", body: this.#inFunction(() => this.#body("endgeneration")) };
      case "block": {
        this.expect("name");
        for (const word of ["scoped", "required"]) this.skip("name", word);
        this.expect("block end");
        const body = this.#inFunction(() => this.#statements(["endblock"]));
        this.expect("name", "endblock");
        this.skip("name");
        return { kind: "scope", body };
      }
      case "print":
        return { kind: "output", expression: this.tuple() };
      case "break":
      case "continue":
        if (this.#loops === 0) this.fail(`'${tag}' outside loop`);
        return { kind: tag };
      default: {
        if (UNSUPPORTED.has(tag)) throw new Unsupported(`line ${this.current.line}: the statement ${tag}`);
        const expected = this.#ends.at(-1)!;
        return this.fail(
          `unknown tag '${tag}'` +
            (expected.length > 0 ? `, or one that comes before '${expected.at(-1)}'` : ""),
        );
      }
    }
  }

  /** `break` in a function does not leave a loop around the function. */
  #inFunction<T>(parse: () => T): T {
    const loops = this.#loops;
    this.#loops = 0;
    const result = parse();
    this.#loops = loops;
    return result;
  }

  #assignee(until?: string): Target {
    // Only names and attributes: `for x in y` must not read `x in y`.
    const items: Expression[] = [];
    let isTuple = false;
    do {
      if (items.length > 0) isTuple = true;
      if (this.is("=") || this.is("block end") || (until !== undefined && this.is("name", until))) break;
      let item = this.primary();
      if (until === undefined && item.kind === "name" && this.skip(".")) {
        item = { kind: "attribute", object: item, name: this.expect("name").value };
      }
      items.push(item);
    } while (this.skip(","));
    if (items.length === 0) this.fail("expected a name to assign to");
    return this.target(isTuple ? { kind: "tuple", items } : items[0]!, until === undefined);
  }

  #set(): Statement {
    const target = this.#assignee();
    if (this.skip("=")) return { kind: "set", target, value: this.tuple() };
    const filter = this.is("|") ? this.filters(null) : null;
    return { kind: "set block", target, filter, body: this.#body("endset") };
  }

  #if(): Statement {
    const test = this.tuple({ withCondition: false });
    this.expect("block end");
    const whenTrue = this.#statements(["elif", "else", "endif"]);
    let whenFalse: Body = [];
    if (this.skip("name", "elif")) whenFalse = [this.deeper(() => this.#if())];
    else {
      if (this.skip("name", "else")) {
        this.expect("block end");
        whenFalse = this.#statements(["endif"]);
      }
      this.expect("name", "endif");
    }
    return { kind: "if", test, whenTrue, whenFalse };
  }

  #for(): Statement {
    const target = this.#assignee("in");
    this.expect("name", "in");
    const iterable = this.tuple({ withCondition: false, until: "recursive" });
    const filter = this.skip("name", "if") ? this.expression() : null;
    const isRecursive = this.skip("name", "recursive");
    this.expect("block end");
    this.#loops++;
    const body = this.#statements(["endfor", "else"]);
    this.#loops--;
    let otherwise: Body = [];
    if (this.skip("name", "else")) {
      this.expect("block end");
      otherwise = this.#statements(["endfor"]);
    }
    this.expect("name", "endfor");
    const readsLoop = isRecursive || reads(body, "loop");
    return { kind: "for", target, iterable, filter, isRecursive, body, otherwise, readsLoop };
  }

  #with(): Statement {
    const bindings: [Target, Expression][] = [];
    while (!this.is("block end")) {
      if (bindings.length > 0) this.expect(",");
      const name = this.expect("name").value;
      this.expect("=");
      bindings.push([{ kind: "name", name }, this.expression()]);
    }
    return { kind: "with", bindings, body: this.#body("endwith") };
  }

  #parameters(): Parameters {
    const names: string[] = [];
    const defaults: Expression[] = [];
    this.expect("(");
    while (!this.is(")")) {
      if (names.length > 0) this.expect(",");
      names.push(this.expect("name").value);
      if (this.skip("=")) defaults.push(this.expression());
      else if (defaults.length > 0) this.fail("non-default argument follows default argument");
    }
    this.expect(")");
    return { names, defaults };
  }
}
