/** The global functions of templates: Jinja's and those added by transformers. */
import strftime from "strftime";
import { bind, required, string } from "./arguments.js";
import { numeric } from "./operators.js";
import { text } from "./representation.js";
import {
  Attributes,
  Callable,
  Dict,
  iterate,
  Limit,
  listed,
  Namespace,
  Range,
  Refusal,
  TemplateError,
  typeName,
  Unsupported,
  type Arguments,
  type Value,
} from "./values.js";

/** Maximum number of elements of one `range`: the limit of Jinja's sandbox. */
const MAXIMUM_RANGE = 100_000;

/** `dict(…)`, and the contents of `namespace(…)`. */
function dict({ positional, named }: Arguments): Dict {
  if (positional.length > 1)
    throw new TemplateError(`dict expected at most 1 argument, got ${positional.length}`);
  const [given] = positional;
  const result = new Dict(given instanceof Dict ? given.entries() : []);
  if (given !== undefined && !(given instanceof Dict)) {
    const iterator = iterate(given);
    for (let next = iterator.next(); next.done !== true; next = iterator.next()) {
      const pair = listed(next.value);
      if (pair.length !== 2) throw new TemplateError("dict() takes pairs");
      result.set(pair[0]!, pair[1]!);
    }
  }
  for (const [name, value] of named) result.set(name, value);
  return result;
}

function range(given: Arguments): Range {
  const bounds = given.positional.map((bound) => {
    const number = numeric(bound);
    if (typeof number !== "bigint")
      throw new TemplateError(`'${typeName(bound)}' object cannot be interpreted as an integer`);
    return number;
  });
  if (bounds.length < 1 || bounds.length > 3 || given.named.size > 0)
    throw new TemplateError("range() takes one to three integers");
  const [start, stop] = bounds.length === 1 ? [0n, bounds[0]!] : [bounds[0]!, bounds[1]!];
  const step = bounds[2] ?? 1n;
  if (step === 0n) throw new TemplateError("range() step must not be zero");
  const result = new Range(start, stop, step);
  if (result.length > MAXIMUM_RANGE) {
    throw new Limit(`a range may have at most ${MAXIMUM_RANGE} numbers, but one has ${result.length}`);
  }
  return result;
}

class Cycler extends Attributes {
  readonly name = "Cycler";
  #at = 0;

  constructor(private readonly items: readonly Value[]) {
    super();
    if (items.length === 0) throw new TemplateError("at least one item has to be provided");
  }

  attribute(name: string): Value | undefined {
    if (name === "current") return this.items[this.#at];
    if (name === "next") {
      return new Callable(name, () => {
        const current = this.items[this.#at]!;
        this.#at = (this.#at + 1) % this.items.length;
        return current;
      });
    }
    if (name === "reset") {
      return new Callable(name, () => {
        this.#at = 0;
        return null;
      });
    }
    return undefined;
  }
}

/** @param date what `strftime_now` writes */
export function globals(date: Date): Map<string, Value> {
  const functions: Readonly<Record<string, (given: Arguments) => Value>> = {
    range,
    dict,
    namespace(given) {
      const namespace = new Namespace();
      for (const [name, value] of dict(given).entries()) namespace.attributes.set(text(name), value);
      return namespace;
    },
    cycler: ({ positional }) => new Cycler(positional),
    joiner(given) {
      const [separator = ", "] = bind("joiner", given, ["sep"]);
      let isFirst = true;
      return new Callable("joiner", () => {
        const result = isFirst ? "" : separator;
        isFirst = false;
        return result;
      });
    },
    lipsum() {
      throw new Unsupported("the function lipsum");
    },
    raise_exception(given) {
      const [message] = bind("raise_exception", given, ["message"]);
      throw new Refusal(text(required("raise_exception", message)));
    },
    strftime_now(given) {
      const [format] = bind("strftime_now", given, ["format"]);
      // Always in English, not in the machine's language.
      return strftime(string("strftime_now", format), date);
    },
  };
  return new Map(Object.entries(functions).map(([name, call]) => [name, new Callable(name, call)]));
}
