/** The package's own loops, with every tensor between pages that may not be touched. */
import { AstraError } from "@astra-rl/base";
import { scope, setThreads, threads, type DType, type Tensor } from "../src/index.js";
import { addon } from "../src/native.js";
import { testAddon } from "../test/test-addon.js";
import type { Fuzzer, Outcome } from "./harness.js";
import type { Random } from "./random.js";
import { anyTensor, bytesOfHandle, laidOut } from "./values.js";

/** One call of the addon, the values to check afterwards, and calls that use its results. */
interface Call {
  name: string;
  arguments: unknown[];
  /** Tensors that are written to. */
  writes?: Tensor[];
  next?: (results: number[]) => Call;
}

const sizes: readonly number[] = [1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 47, 64, 65, 96, 128, 130];
const fewSizes: readonly number[] = [1, 1, 2, 3, 4];
const floatTypes: readonly DType[] = ["float32", "bfloat16"];

const size = (random: Random) => random.pick(sizes);
const few = (random: Random) => random.pick(fewSizes);
const words = (random: Random, ...shape: number[]) => laidOut(random, shape, "bfloat16");
const floats = (random: Random, ...shape: number[]) => laidOut(random, shape, "float32");
const either = (random: Random, ...shape: number[]) => laidOut(random, shape, random.pick(floatTypes));
const indices = (random: Random, count: number, most: number) => {
  const dense = laidOut(random, [count], "int64");
  // Most of them inside.
  return random.chance(0.9) ? dense.remainder(Math.max(1, most)) : dense;
};

function linear(random: Random, name: string, wide: boolean): Call {
  const rows = random.chance(0.3) ? [few(random), size(random)] : [random.pick([...sizes, 200])];
  const [inner, outputs] = [random.pick([...sizes, 160, 544]), random.pick([...sizes, 208, 400])];
  const transposed = random.chance(0.5);
  const weight = transposed ? either(random, inner, outputs) : either(random, outputs, inner);
  const bias = random.chance(0.5) ? either(random, outputs) : null;
  const residual = wide && random.chance(0.5) ? floats(random, ...rows, outputs) : null;
  return { name, arguments: [either(random, ...rows, inner), weight, transposed, bias, wide, residual] };
}

const makers: Record<string, (random: Random) => Call> = {
  bfloat16Linear: (random) => linear(random, "bfloat16Linear", random.chance(0.5)),
  floatLinear: (random) => linear(random, "floatLinear", true),
  bfloat16Product(random) {
    const inner = size(random);
    const sides = [either(random, size(random), inner), either(random, inner, size(random))];
    return { name: "bfloat16Product", arguments: [...sides, random.chance(0.5)] };
  },
  bfloat16WeightGradient(random) {
    const [rows, outputs, inner] = [size(random), size(random), size(random)];
    const weight = random.chance(0.5) ? either(random, outputs, inner) : either(random, inner, outputs).t();
    return {
      name: "bfloat16WeightGradient",
      arguments: [either(random, rows, outputs), either(random, rows, inner), weight],
    };
  },
  decodeAttention(random) {
    const [batch, groups, shared] = [few(random), few(random), few(random)];
    const [columns, head] = [size(random), random.pick([...sizes, 256])];
    const rows = batch + random.integer(0, 2);
    const type = random.pick<DType>(["bfloat16", "bfloat16", "float32"]);
    const numbers = (...shape: number[]) => laidOut(random, shape, type);
    const ends = Array.from({ length: batch }, () => random.integer(1, columns));
    const ranges = ends.flatMap((end, at) => [at, random.chance(0.7) ? 0 : random.integer(0, end - 1), end]);
    if (random.chance(0.2)) ranges[random.integer(0, ranges.length - 1)] = random.integer(-2, 2 * columns);
    return {
      name: "decodeAttention",
      arguments: [
        numbers(batch, groups * shared, 1, head),
        numbers(rows, groups, columns, head),
        numbers(rows, groups, columns, head),
        integers(random, ranges, [batch, 3]),
        random.next(),
        ...(random.chance(0.4) ? sharing(random, ends) : [null, null]),
      ],
    };
  },
  copyColumns(random) {
    const [rows, heads, columns, head] = [few(random), few(random), size(random), size(random)];
    const type = random.pick<DType>(["float32", "bfloat16", "int64", "bool"]);
    const to = laidOut(random, [rows + 2, heads, columns + 8, head], type);
    const shift = random.integer(0, 2); // no two runs may write to one place
    const runs = Array.from({ length: random.integer(0, rows) }, (_, row) => {
      const count = random.integer(0, columns);
      return [row + shift, random.integer(0, 8), row, random.integer(0, columns - count), count];
    }).flat();
    if (runs.length > 0 && random.chance(0.2))
      runs[random.integer(0, runs.length - 1)] = random.pick([-2, -1, 2 * columns + 16]);
    return {
      name: "copyColumns",
      arguments: [
        to,
        laidOut(random, [rows, heads, columns, head], random.chance(0.8) ? type : "float32"),
        integers(random, runs, [runs.length / 5, 5]),
      ],
      writes: [to],
    };
  },
  fusedAttention(random) {
    const [batch, groups, shared] = [few(random), few(random), few(random)];
    const [queries, head] = [size(random), random.pick([...sizes, 200, 256])];
    const texts = random.chance(0.3) ? Array.from({ length: random.integer(2, 4) }, () => size(random)) : [];
    const type = random.pick<DType>(["bfloat16", "float32"]);
    const numbers = (...shape: number[]) => laidOut(random, shape, type);
    const tokens = texts.length > 0 ? texts.reduce((sum, each) => sum + each, 0) : queries;
    const columns = texts.length > 0 ? tokens : size(random);
    const biasOf = (rows: number, length: number) =>
      numbers(random.pick([1, batch * groups]), random.pick([1, shared * rows]), length);
    const biases =
      texts.length > 0
        ? texts.map((each) => biasOf(each, each))
        : random.chance(0.7)
          ? [biasOf(queries, columns)]
          : [];
    const given = [
      numbers(batch, groups * shared, tokens, head),
      numbers(batch, groups, columns, head),
      numbers(batch, groups, columns, head),
      biases,
      random.pick([0.125, 1, 0.3, 1e-6, 1e6]),
    ];
    return {
      name: "fusedAttention",
      arguments: given,
      next: ([output, measures]) => ({
        name: "fusedAttentionBackward",
        arguments: [...given, output, measures, numbers(batch, tokens, groups * shared * head)],
      }),
    };
  },
  norm(random) {
    const [rows, width] = [[few(random), size(random)], random.pick([...sizes, 768])];
    const input = either(random, ...rows, width);
    const weight = either(random, width);
    const centred = random.chance(0.5);
    const recording = random.chance(0.7);
    const bias = random.chance(0.5) ? either(random, width) : null;
    return {
      name: "norm",
      arguments: [input, weight, bias, centred, random.chance(0.3), 1e-5, recording],
      next: ([, measures]) => ({
        name: "normBackward",
        arguments: [input, either(random, ...rows, width), weight, measures ?? weight, centred],
      }),
    };
  },
  sortedTopK(random) {
    const width = random.pick([...sizes, 500]);
    return {
      name: "sortedTopK",
      arguments: [either(random, size(random), width), random.integer(0, width + 1)],
    };
  },
  geluTanh(random) {
    const type = random.pick(floatTypes);
    const shape = [few(random), size(random), size(random)];
    const gradient = random.chance(0.5) ? laidOut(random, shape, type) : null;
    return { name: "geluTanh", arguments: [laidOut(random, shape, type), gradient] };
  },
  swiglu(random) {
    const type = random.pick(floatTypes);
    const shape = [few(random), size(random), size(random)];
    const [gate, up, gradient] = [0, 1, 2].map(() => laidOut(random, shape, type));
    return { name: "swiglu", arguments: [gate, up, random.chance(0.5) ? gradient : null] };
  },
  rotary(random) {
    const type = random.pick(floatTypes);
    const [batch, tokens, heads, half] = [few(random), size(random), few(random), size(random)];
    const [cosine, sine] = [0, 1].map(() => laidOut(random, [batch, tokens, half], type));
    const input = laidOut(random, [batch, tokens, heads, 2 * half], type);
    return { name: "rotary", arguments: [input, cosine, sine, random.chance(0.5)] };
  },
  selectiveLogSoftmax(random) {
    const [rows, vocabulary] = [size(random), random.pick([...sizes, 300])];
    const logits = (random.chance(0.5) ? words : floats)(random, rows, vocabulary);
    const count = random.pick([0, 1, 5, rows]);
    const chosen = indices(random, count, rows * vocabulary);
    return {
      name: "selectiveLogSoftmax",
      arguments: [logits, chosen],
      next: ([, normalisers]) => ({
        name: "selectiveLogSoftmaxBackward",
        arguments: [logits, chosen, normalisers, floats(random, count)],
      }),
    };
  },
  fusedAdam(random) {
    const shapes = Array.from({ length: random.integer(0, 3) }, () => [size(random), size(random)]);
    const [parameters, gradients, means, squares] = [0, 1, 2, 3].map(() =>
      shapes.map((shape) => floats(random, ...shape)),
    ) as [Tensor[], Tensor[], Tensor[], Tensor[]];
    const steps = shapes.map(() => random.integer(0, 5));
    const rates = [1e-3, 0.9, 0.999, 1e-8, 0.1];
    return {
      name: "fusedAdam",
      arguments: [parameters, gradients, means, squares, steps, ...rates, random.chance(0.5)],
      writes: [...parameters, ...means, ...squares],
    };
  },
  gradientNorm(random) {
    const given = Array.from({ length: random.integer(0, 3) }, () =>
      floats(random, size(random), size(random)),
    );
    return { name: "gradientNorm", arguments: [given] };
  },
};

/** Rows declared to share their first columns: correctly, nearly correctly, or not at all. */
function sharing(random: Random, ends: readonly number[]): [Tensor, Tensor] {
  const order = Array.from(ends.keys());
  const common = random.integer(0, Math.min(...ends) - 1);
  const pieces = common > 0 ? [0, 0, common, 0, ends.length] : [];
  for (const row of order) pieces.push(row, common, -1, row, 1);
  if (random.chance(0.3))
    pieces[random.integer(0, pieces.length - 1)] = random.integer(-2, 2 * Math.max(...ends));
  if (random.chance(0.1)) order[0] = random.integer(-1, ends.length);
  return [integers(random, order, [order.length]), integers(random, pieces, [pieces.length / 5, 5])];
}

/** Whole numbers as a tensor of some layout. */
function integers(random: Random, values: readonly number[], shape: readonly number[]): Tensor {
  const made = laidOut(random, shape, "int32");
  try {
    values.forEach((value, at) => made.view([-1]).narrow(0, at, 1).fill_(value));
  } catch (error) {
    // One number expanded to many: nothing can be written there.
    if (!(error instanceof AstraError)) throw error;
  }
  return made;
}
/** Replaces one argument, of this call or of the one that uses its results. */
function spoil(random: Random, call: Call): Call {
  const { next } = call;
  if (next !== undefined && random.chance(0.5))
    return { ...call, next: (results) => spoil(random, next(results)) };
  const at = random.integer(0, call.arguments.length - 1);
  const spoilt = (value: unknown): unknown => {
    if (Array.isArray(value)) {
      return value.length === 0 ? [anyTensor(random, [2, 3])] : [spoilt(value[0]), ...value.slice(1)];
    }
    if (typeof value === "number")
      return random.pick([0, -1, NaN, Infinity, 2 ** 31, 2 ** 53 - 1, 1e-30, value + 1]);
    if (typeof value === "boolean") return !value;
    if (value === null || typeof value !== "object") return anyTensor(random, [3]);
    const given = value as Tensor;
    const { shape } = given;
    if (shape.length === 0 || random.chance(0.4)) return anyTensor(random, shape);
    const dim = random.integer(0, shape.length - 1);
    if (random.chance(0.3) || shape[dim] === 0) return given.unsqueeze(dim);
    const length = random.pick([0, 1, 2 ** 20, 2 ** 33, 2 ** 40, 2 ** 50, 2 ** 52]);
    return given
      .detach()
      .narrow(dim, 0, 1)
      .expand(shape.map((each, i) => (i === dim ? length : each)));
  };
  const given = [...call.arguments];
  try {
    given[at] = spoilt(given[at]);
  } catch (error) {
    if (!(error instanceof AstraError)) throw error;
  }
  const { name, writes } = call;
  return { name, arguments: given, ...(writes === undefined ? {} : { writes }) };
}

const describe = (value: unknown): string => {
  if (Array.isArray(value)) return `[${value.map(describe).join(", ")}]`;
  if (typeof value !== "object" || value === null) return String(value);
  const { dtype, shape } = value as Tensor;
  return `${dtype}[${shape.join(",")}]`;
};

const handles = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(handles);
  return typeof value === "object" && value !== null ? (value as Tensor).handle : value;
};

/** Bytes of a result, or its description. */
type Seen = string | Uint8Array;

const isSame = (a: Seen, b: Seen) =>
  typeof a === "string" || typeof b === "string" ? a === b : Buffer.compare(a, b) === 0;

const isRefusal = (seen: Seen): seen is string => typeof seen === "string" && seen.startsWith("refused: ");

/** Runs a call and those that use its results: every result, or the refusal. */
function runCall(call: Call, tell: (what: string) => void, guards: (alignment: number) => void): Seen[] {
  const native = addon() as unknown as Record<string, (...values: unknown[]) => unknown>;
  tell(`${call.name}(${call.arguments.map(describe).join(", ")})`);
  const seen: Seen[] = [];
  const look = (handle: number) => seen.push(bytesOfHandle(handle) ?? "too large");
  try {
    guards(64);
    const result = native[call.name]!(...call.arguments.map(handles));
    for (const each of call.writes ?? []) look(each.handle);
    const isHandle = typeof result === "number" && call.name !== "gradientNorm";
    if (!isHandle && !Array.isArray(result)) return [...seen, String(result)];
    const results = [result].flat() as number[];
    try {
      results.forEach(look);
      if (call.next !== undefined) {
        guards(1);
        const following = call.next(results);
        guards(64);
        seen.push(...runCall(following, tell, guards));
      }
    } finally {
      for (const each of results) addon().release(each);
    }
  } catch (error) {
    if (!(error instanceof AstraError) || error.message.startsWith("internal:")) throw error;
    seen.push(`refused: ${error.message}`);
  }
  return seen;
}

/** One case: the same call with differently filled memory, which must not affect the result. */
export const kernels: Fuzzer = {
  about:
    "our own loops, tensors between guard pages, each call twice over memory that held other bytes before",

  prepare() {
    addon();
  },

  run(random, tell, index): Outcome {
    const name = random.pick(Object.keys(makers));
    const salt = random.integer(0, 2 ** 31 - 1);
    const spoils = random.chance(0.3);
    // Changing the number of threads recreates them, which takes longer than a hundred cases.
    const wanted = 1 + (Math.floor(index / 1000) % 3);
    if (threads() !== wanted) setThreads(wanted);
    const runs = [0xff, 0x3c].map((fill) => {
      const guards = (alignment: number) => testAddon().guardAllocations(alignment, fill);
      try {
        guards(1);
        return scope(() => {
          const own = random.fork(salt);
          const call = makers[name]!(own);
          return runCall(spoils ? spoil(own, call) : call, tell, guards);
        });
      } finally {
        testAddon().guardAllocations(0, 0);
      }
    }) as [Seen[], Seen[]];
    const [first, second] = runs;
    if (first.length !== second.length || !first.every((seen, at) => isSame(seen, second[at]!))) {
      throw new Error(`${name} gives other results where its memory held other bytes before`);
    }
    return { refused: first.find(isRefusal) ?? null };
  },
};
