import type { Random } from "./random.js";

const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);

/** Values that files are not expected to hold. */
const hostile: readonly (() => unknown)[] = [
  () => null,
  () => true,
  () => false,
  () => 0,
  () => -1,
  () => 1,
  () => 2,
  () => 3,
  () => 0.5,
  () => 1e-308,
  () => 1e308,
  () => 2 ** 31,
  () => 2 ** 32 + 1,
  () => 2 ** 53 - 1,
  () => -(2 ** 63),
  () => "",
  () => "1",
  () => "x",
  () => "\0",
  () => "..",
  () => "\ud800",
  () => "__proto__",
  () => "constructor",
  () => "x".repeat(100_000),
  () => [],
  () => [null],
  () => [1, 2, 3],
  () => ["a", "b"],
  () => Array<number>(50_000).fill(7),
  () => nested(30),
  () => nested(500),
  () => ({}),
  () => ({ a: 1 }),
  () =>
    JSON.parse(
      '{"__proto__": {"polluted": true}, "constructor": {"prototype": {"polluted": true}}}',
    ) as unknown,
];

/** A copy in which a few random values are replaced. */
export function mutateJson(value: unknown, random: Random): unknown {
  let changed = structuredClone(value);
  for (let times = 1 + random.below(3); times > 0; times--) changed = mutateOnce(changed, random);
  return changed;
}

function mutateOnce(value: unknown, random: Random): unknown {
  const isContainer = typeof value === "object" && value !== null;
  const keys = isContainer ? Object.keys(value) : [];
  if (keys.length === 0) return random.pick(hostile)();
  const container = value as Record<string, unknown>;
  const key = random.pick(keys);
  const put = (name: string, given: unknown) =>
    (Array.isArray(container) && !/^\d+$/.test(name)) ||
    // Not by assignment, which would treat "__proto__" as the prototype.
    Object.defineProperty(container, name, {
      value: given,
      enumerable: true,
      configurable: true,
      writable: true,
    });
  switch (random.below(8)) {
    case 0:
      if (Array.isArray(container)) container.splice(Number(key), 1);
      else delete container[key];
      break;
    case 1:
      put(
        random.pick(["__proto__", "constructor", "toString", "length", "0", "", key + " "]),
        container[key],
      );
      break;
    case 2:
      put(key, container[random.pick(keys)]);
      break;
    case 3:
    case 4: {
      const number = container[key];
      if (typeof number === "number")
        put(key, random.pick([number + 1, number - 1, 2 * number, -number, number / 2]));
      else put(key, mutateOnce(number, random));
      break;
    }
    default:
      if (typeof container[key] === "object" && random.once(2)) put(key, mutateOnce(container[key], random));
      else put(key, random.pick(hostile)());
  }
  return value;
}

/** The file of a mutated value: rarely with another encoding, a byte order mark, changed bytes or truncated. */
export function mutatedFile(value: unknown, random: Random): Buffer {
  const text = JSON.stringify(mutateJson(value, random)) ?? "";
  let bytes = Buffer.from(
    random.once(40) ? text.replace(/\d+/, () => random.pick(["NaN", "1e999", "Infinity", "01"])) : text,
  );
  if (random.once(60)) bytes = Buffer.concat([Buffer.from("\ufeff"), bytes]);
  if (random.once(60)) bytes = Buffer.from(text, "utf16le");
  if (random.once(15)) return mutateBytes(bytes, random);
  return bytes;
}

/** Changed bytes, or a truncated or extended end. */
export function mutateBytes(given: Uint8Array, random: Random): Buffer {
  const bytes = Buffer.from(given);
  if (random.once(5)) return bytes.subarray(0, random.below(bytes.length + 1));
  if (random.once(20)) return Buffer.concat([bytes, Buffer.from([random.below(256)])]);
  for (let times = 1 + random.below(4); times > 0 && bytes.length > 0; times--) {
    bytes[random.below(bytes.length)] = random.below(256);
  }
  return bytes;
}
