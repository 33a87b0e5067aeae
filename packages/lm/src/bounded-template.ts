import { UsageError } from "@astra-rl/base";
import { globals } from "./jinja/globals.js";
import { Interpreter } from "./jinja/interpreter.js";
import type { Body } from "./jinja/nodes.js";
import { parse } from "./jinja/parser.js";
import { Scope } from "./jinja/scope.js";
import { Limit, Refusal, TemplateError, Unsupported, valueOf } from "./jinja/values.js";
import { reason } from "./json-fields.js";
import { TimeLimitError, withTimeLimit } from "./time-limit.js";

/** Maximum template length in characters. */
const MAXIMUM_TEMPLATE = 2 ** 18;
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

/**
 * A Jinja template, with Python's semantics (docs/decisions/0190). It comes with
 * a model and is not trusted, so its run time and the size of its values are limited, both in proportion to the
 * conversation. The memory of a single running filter is limited only by the time limit and by the size of a text.
 */
export class BoundedTemplate {
  readonly #body: Body;

  /**
   * @param where file and key that the template comes from; starts every error message
   * @throws UsageError if the template is too long, cannot be parsed, or uses what is not supported
   */
  constructor(
    source: string,
    private readonly where: string,
  ) {
    if (source.length > MAXIMUM_TEMPLATE) {
      throw new UsageError(
        "template-too-long",
        `${where}: a chat template must have at most ${MAXIMUM_TEMPLATE} characters, but it has ${source.length}`,
      );
    }
    try {
      this.#body = withTimeLimit(TIME, () => parse(source));
    } catch (cause) {
      const isUnsupported = cause instanceof Unsupported;
      const problem = isUnsupported
        ? `it uses what is not supported: ${shortened(cause)}`
        : `it cannot be parsed: ${cause instanceof RangeError ? "it is nested too deeply" : shortened(cause)}`;
      throw new UsageError(
        isUnsupported ? "unsupported-template" : "malformed-template",
        `${where}: must be a Jinja template, but ${problem}`,
        { cause },
      );
    }
  }

  /**
   * @param variables available to the template
   * @param date what `strftime_now` writes
   * @throws UsageError if the template refuses the conversation, fails as it does in Python, uses what is not supported, or
   * reaches a limit
   */
  render(variables: Readonly<Record<string, unknown>>, date = new Date()): string {
    const length = JSON.stringify(variables).length;
    const scope = new Scope(null);
    for (const [name, value] of globals(date)) scope.set(name, value);
    for (const [name, value] of Object.entries(variables)) scope.set(name, valueOf(value));
    const interpreter = new Interpreter(SIZE + SIZE_FOR_CHARACTER * length);
    try {
      return withTimeLimit(TIME + TIME_FOR_CHARACTER * length, () =>
        interpreter.render(this.#body, new Scope(scope)),
      );
    } catch (cause) {
      const [rule, sentence] = explained(cause);
      throw new UsageError(rule, `${this.where}: ${sentence}`, { cause });
    }
  }
}

/** Who is at fault: the conversation, the template, or what is supported here. */
function explained(cause: unknown): [rule: string, sentence: string] {
  if (cause instanceof Refusal)
    return ["template-refuses", `the template refuses this conversation: ${shortened(cause)}`];
  if (cause instanceof TemplateError)
    return ["template-fails", `the template fails, as it does in Python: ${shortened(cause)}`];
  if (cause instanceof Unsupported)
    return ["unsupported-template", `the template uses what is not supported: ${shortened(cause)}`];
  if (cause instanceof Limit || cause instanceof TimeLimitError)
    return ["template-limit", `${cause.message}; do not use this template`];
  if (cause instanceof RangeError) {
    return [
      "template-limit",
      `it needs more than the interpreter's memory: ${cause.message}; do not use this template`,
    ];
  }
  throw cause;
}

/** Templates may raise arbitrarily long messages: only the first lines are kept. */
function shortened(cause: unknown): string {
  const text = reason(cause);
  return text.length > 500 ? `${text.slice(0, 497)}...` : text;
}
