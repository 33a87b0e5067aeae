/** Jinja's filters on collections. Those that Python evaluates lazily are lazy here. */
import { bind, integer, required } from "./arguments.js";
import type { Filter, Runtime } from "./filters.js";
import { attribute as attributeOf, item as itemOf, joinTexts } from "./methods.js";
import { binary, element, equals, order } from "./operators.js";
import { text } from "./representation.js";
import {
  Dict,
  isTrue,
  iterate,
  Iteration,
  Limit,
  listed,
  orElse,
  TemplateError,
  tupleOf,
  type Tuple,
  typeName,
  Undefined,
  Unsupported,
  type Arguments,
  type Value,
} from "./values.js";

/** Maximum number of lists that `batch` and `slice` make, and of values that they pad with. */
const MAXIMUM_PARTS = 100_000;

const lazily = (values: Generator<Value>) => new Iteration(values);

function* each(value: Value): Generator<Value> {
  const iterator = iterate(value);
  for (let next = iterator.next(); next.done !== true; next = iterator.next()) yield next.value;
}

/** Jinja ignores case in comparisons of texts by default. */
const folded = (value: Value, caseSensitive: boolean): Value =>
  typeof value === "string" && !caseSensitive ? value.toLowerCase() : value;

/** Reads `a.b.0` of a value. */
function getter(path: Value, missing?: Value): (value: Value) => Value {
  const parts =
    typeof path === "string"
      ? path.split(".").map((part) => (/^\d+$/.test(part) ? BigInt(part) : part))
      : [path];
  return (value) =>
    parts.reduce<Value>((at, part) => {
      const found = itemOf(at, part);
      return found instanceof Undefined && missing !== undefined ? missing : found;
    }, value);
}

const keyed = (attribute: Value | undefined, caseSensitive: boolean) => {
  const read = attribute === undefined || attribute === null ? (value: Value) => value : getter(attribute);
  return (value: Value) => folded(read(value), caseSensitive);
};

function sorted(values: Value[], keys: Value[], reverse: boolean): Value[] {
  const places = values.map((_, index) => index);
  const sign = reverse ? -1 : 1;
  places.sort((a, b) => (equals(keys[a]!, keys[b]!) ? 0 : sign * order("<", keys[a]!, keys[b]!)));
  return places.map((at) => values[at]!);
}

/** `select`, `reject`, `selectattr`, `rejectattr`. */
const selecting =
  (ofAttribute: boolean, wanted: boolean): Filter =>
  (value, given, runtime) => {
    const arguments_ = [...given.positional];
    const read = ofAttribute ? getter(required("selectattr", arguments_.shift())) : (member: Value) => member;
    const [name, ...rest] = arguments_;
    const holds = name === undefined ? isTrue : (member: Value) => runtime.test(text(name), member, rest);
    const filtered = function* (): Generator<Value> {
      if (!isTrueOrIteration(value)) return;
      for (const member of each(value)) if (holds(read(member)) === wanted) yield member;
    };
    return lazily(filtered());
  };

/** Jinja returns nothing for a false sequence, None included, before it iterates. */
const isTrueOrIteration = (value: Value) => value instanceof Iteration || isTrue(value);

function extreme(sign: 1 | -1): Filter {
  return (value, given) => {
    const [caseSensitive, attribute] = bind("max", given, ["case_sensitive", "attribute"]);
    const key = keyed(attribute, caseSensitive !== undefined && isTrue(caseSensitive));
    let best: Value | undefined;
    for (const member of each(value)) {
      if (best === undefined || sign * order("<", key(member), key(best)) > 0) best = member;
    }
    return orElse(best, () => new Undefined("No aggregated item, sequence was empty."));
  };
}

function mapping(value: Value, given: Arguments, runtime: Runtime): Value {
  let apply: (member: Value) => Value;
  if (given.positional.length === 0 && given.named.has("attribute")) {
    const [attribute, missing] = bind("map", given, ["attribute", "default"]);
    apply = getter(attribute!, missing);
  } else {
    const [name, ...rest] = given.positional;
    const filter = text(required("map", name));
    apply = (member) => runtime.filter(filter, member, { positional: rest, named: given.named });
  }
  const mapped = function* (): Generator<Value> {
    if (!isTrueOrIteration(value)) return;
    for (const member of each(value)) yield apply(member);
  };
  return lazily(mapped());
}

function parts(count: number): number {
  if (count > MAXIMUM_PARTS) throw new Limit(`a list may be filled up to at most ${MAXIMUM_PARTS} elements`);
  return count;
}

export const collectionFilters: Readonly<Record<string, Filter>> = {
  attr(value, given) {
    const [name] = bind("attr", given, ["name"]);
    const read = text(required("attr", name));
    if (value instanceof Dict && element(value, read) !== undefined) {
      // This filter reads only attributes, never elements.
      return new Undefined(`'dict object' has no attribute '${read}'`);
    }
    return attributeOf(value, read);
  },
  batch(value, given) {
    const [size, fill] = bind("batch", given, ["linecount", "fill_with"]);
    const count = parts(integer("batch", required("batch", size), 1));
    const batches = function* (): Generator<Value> {
      let batch: Value[] = [];
      for (const member of each(value)) {
        if (batch.length === count) {
          yield batch;
          batch = [];
        }
        batch.push(member);
      }
      if (batch.length === 0) return;
      if (fill !== undefined && fill !== null) while (batch.length < count) batch.push(fill);
      yield batch;
    };
    return lazily(batches());
  },
  dictsort(value, given) {
    const [caseSensitive, by = "key", reverse] = bind("dictsort", given, ["case_sensitive", "by", "reverse"]);
    if (!(value instanceof Dict)) throw new TemplateError(`dictsort needs a dict, not ${typeName(value)}`);
    if (by !== "key" && by !== "value")
      throw new TemplateError('You can only sort by either "key" or "value"');
    const pairs = [...value.entries()].map(([key, member]) => tupleOf(key, member));
    const isSensitive = caseSensitive !== undefined && isTrue(caseSensitive);
    const keys = pairs.map((pair) => folded(pair[by === "key" ? 0 : 1]!, isSensitive));
    return sorted(pairs, keys, reverse !== undefined && isTrue(reverse));
  },
  first(value, given) {
    bind("first", given, []);
    const next = iterate(value).next();
    return next.done === true ? new Undefined("No first item, sequence was empty.") : next.value;
  },
  groupby(value, given) {
    const [attribute, missing, caseSensitive] = bind("groupby", given, [
      "attribute",
      "default",
      "case_sensitive",
    ]);
    const read = getter(required("groupby", attribute), missing);
    const isSensitive = caseSensitive !== undefined && isTrue(caseSensitive);
    const all = listed(value);
    const groups: Tuple[] = [];
    for (const member of sorted(
      all,
      all.map((each) => folded(read(each), isSensitive)),
      false,
    )) {
      const key = folded(read(member), isSensitive);
      if (key instanceof Undefined) key.fail();
      const last = groups.at(-1);
      if (last !== undefined && equals(folded(last[0]!, isSensitive), key)) (last[1] as Value[]).push(member);
      else groups.push(tupleOf(read(member), [member]));
    }
    return groups;
  },
  items(value, given) {
    bind("items", given, []);
    if (value instanceof Undefined) return lazily(each([]));
    if (!(value instanceof Dict)) throw new TemplateError("Can only get item pairs from a mapping.");
    const pairs = function* (): Generator<Value> {
      for (const [key, member] of value.entries()) yield tupleOf(key, member);
    };
    return lazily(pairs());
  },
  join(value, given) {
    const [separator, attribute] = bind("join", given, ["d", "attribute"]);
    const read =
      attribute === undefined || attribute === null ? (member: Value) => member : getter(attribute);
    return joinTexts(
      listed(value).map((member) => text(read(member))),
      separator === undefined ? "" : text(separator),
    );
  },
  last(value, given) {
    bind("last", given, []);
    if (value instanceof Iteration) throw new TemplateError(`'${typeName(value)}' object is not reversible`);
    return orElse(listed(value).at(-1), () => new Undefined("No last item, sequence was empty."));
  },
  list(value, given) {
    bind("list", given, []);
    return listed(value);
  },
  map: mapping,
  max: extreme(1),
  min: extreme(-1),
  reject: selecting(false, false),
  rejectattr: selecting(true, false),
  reverse(value, given) {
    bind("reverse", given, []);
    if (typeof value === "string") return Array.from(value).reverse().join("");
    return new Iteration(listed(value).reverse()[Symbol.iterator](), "list_reverseiterator object");
  },
  select: selecting(false, true),
  selectattr: selecting(true, true),
  slice(value, given) {
    const [slices, fill] = bind("slice", given, ["slices", "fill_with"]);
    const count = parts(integer("slice", required("slice", slices), 1));
    const all = listed(value);
    if (count === 0) throw new TemplateError("integer division or modulo by zero");
    const size = Math.floor(all.length / count);
    const longer = all.length % count;
    const cut = function* (): Generator<Value> {
      for (let part = 0, start = 0; part < count; part++) {
        const end = start + size + (part < longer ? 1 : 0);
        const slice = all.slice(start, end);
        if (fill !== undefined && fill !== null && part >= longer) slice.push(fill);
        yield slice;
        start = end;
      }
    };
    return lazily(cut());
  },
  sort(value, given) {
    const [reverse, caseSensitive, attribute] = bind("sort", given, [
      "reverse",
      "case_sensitive",
      "attribute",
    ]);
    if (typeof attribute === "string" && attribute.includes(","))
      throw new Unsupported("sorting by several attributes");
    const all = listed(value);
    const key = keyed(attribute, caseSensitive !== undefined && isTrue(caseSensitive));
    return sorted(all, all.map(key), reverse !== undefined && isTrue(reverse));
  },
  sum(value, given) {
    const [attribute, start = 0n] = bind("sum", given, ["attribute", "start"]);
    const read =
      attribute === undefined || attribute === null ? (member: Value) => member : getter(attribute);
    return listed(value).reduce<Value>((sum, member) => {
      const next = read(member);
      if (typeof next === "string")
        throw new TemplateError("unsupported operand type(s) for +: 'int' and 'str'");
      return binary("+", sum, next);
    }, start);
  },
  unique(value, given) {
    const [caseSensitive, attribute] = bind("unique", given, ["case_sensitive", "attribute"]);
    const key = keyed(attribute, caseSensitive !== undefined && isTrue(caseSensitive));
    const distinct = function* (): Generator<Value> {
      const seen = new Dict();
      for (const member of each(value)) {
        const own = key(member);
        if (seen.has(own)) continue;
        seen.set(own, true);
        yield member;
      }
    };
    return lazily(distinct());
  },
};
