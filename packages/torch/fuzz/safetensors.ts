/** Safetensors files that were written, damaged or are being written by others. */
import {
  ftruncateSync,
  openSync,
  closeSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { UsageError } from "@astra-rl/base";
import { bytesOf } from "../src/dtype.js";
import { openSafetensors, scope, writeSafetensors, type Tensor } from "../src/index.js";
import type { Fuzzer, Outcome } from "./harness.js";
import type { Random } from "./random.js";
import { anyDtype, anyShape, bytesOfHandle, laidOut } from "./values.js";

let path = "";
/** Long before any change of a case, so that the change gives another modification time. */
const LONG_AGO = 1_000_000_000;

function writeOne(random: Random): Map<string, string> {
  const tensors = new Map<string, Tensor>();
  for (let at = random.integer(0, 4); at > 0; at -= 1) {
    const made = laidOut(random, anyShape(random), anyDtype(random));
    const name = random.pick(["a", "weight", "h.0.w", "__proto__", "é", ""]) + at;
    if (made.numel() < 10_000) tensors.set(name, made);
  }
  writeSafetensors(path, tensors, random.chance(0.3) ? { format: "pt" } : {});
  return new Map([...tensors].map(([name, tensor]) => [name, contentOf(tensor)]));
}

const contentOf = (tensor: Tensor) =>
  `${tensor.dtype} ${tensor.shape.join()} ${Buffer.from(bytesOfHandle(tensor.handle)!).toString("base64")}`;

/** Invalid values for headers. */
const strangers = [
  -1,
  0,
  1,
  7,
  2 ** 31,
  2 ** 53,
  1e300,
  0.5,
  null,
  true,
  "x",
  "F32",
  "I64",
  [],
  [0],
  [2, 2],
  {},
  [2 ** 40, 2 ** 40],
];

/** Another value somewhere in the header, or another key. */
function spoilHeader(random: Random, bytes: Buffer): Buffer {
  const length = Number(bytes.readBigUInt64LE());
  const header = JSON.parse(bytes.subarray(8, 8 + length).toString()) as Record<string, unknown>;
  const walk = (value: unknown): unknown => {
    if (typeof value !== "object" || value === null || random.chance(0.2)) return random.pick(strangers);
    const keys = Object.keys(value);
    if (keys.length === 0) return random.pick(strangers);
    const key = random.pick(keys);
    const copy = (Array.isArray(value) ? [...(value as unknown[])] : { ...value }) as Record<string, unknown>;
    const removes = random.chance(0.1);
    const doubles = !removes && random.chance(0.1);
    if (removes) delete copy[key];
    else if (doubles) copy[`${key}x`] = copy[key];
    else copy[key] = walk(copy[key]);
    return copy;
  };
  const text = Buffer.from(JSON.stringify(walk(header)));
  const start = Buffer.alloc(8);
  start.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([start, text, bytes.subarray(8 + length)]);
}

function spoilBytes(random: Random, bytes: Buffer): Buffer {
  const kind = random.next();
  const at = random.integer(0, bytes.length - 1);
  // Near the beginning nearly every byte matters.
  const place = random.chance(0.7) ? Math.min(at, random.integer(0, 200)) : at;
  if (kind < 0.5) {
    const copy = Buffer.from(bytes);
    copy[place] = random.chance(0.5) ? random.integer(0, 255) : copy[place]! ^ (1 << random.integer(0, 7));
    return copy;
  }
  if (kind < 0.7) return bytes.subarray(0, place);
  if (kind < 0.8) return Buffer.concat([bytes, Buffer.alloc(random.integer(1, 20))]);
  if (kind < 0.9) {
    const end = Math.min(bytes.length, place + random.integer(1, 30));
    return Buffer.concat([bytes.subarray(0, place), bytes.subarray(end)]);
  }
  const copied = bytes.subarray(place, Math.min(bytes.length, place + random.integer(1, 30)));
  return Buffer.concat([bytes.subarray(0, at), copied, bytes.subarray(at)]);
}

/** Changes of the file while it is open; whether its tensors must still be unchanged. */
function disturb(random: Random): boolean {
  const bytes = readFileSync(path);
  const kind = random.integer(0, 4);
  if (kind === 0) rmSync(path);
  else if (kind === 1) {
    writeFileSync(`${path}.new`, Buffer.alloc(bytes.length, 7));
    renameSync(`${path}.new`, path);
  } else {
    const file = openSync(path, "r+");
    if (kind === 2) ftruncateSync(file, random.integer(0, bytes.length - 1));
    else
      writeSync(
        file,
        Buffer.alloc(random.integer(1, bytes.length), 7),
        0,
        undefined,
        kind === 3 ? 0 : bytes.length,
      );
    closeSync(file);
  }
  return kind <= 1;
}

export const safetensors: Fuzzer = {
  about: "spoilt safetensors files, and files that change between opening and reading",

  prepare(folder) {
    path = join(folder, "fuzzed.safetensors");
  },

  run(random, tell): Outcome {
    return scope(() => {
      const written = writeOne(random);
      const disturbs = random.chance(0.3);
      const bytes = readFileSync(path);
      if (!disturbs) {
        let spoilt: Buffer = bytes;
        for (let round = random.integer(1, 2); round > 0; round -= 1) {
          try {
            spoilt = random.chance(0.5) ? spoilHeader(random, spoilt) : spoilBytes(random, spoilt);
          } catch {
            // The header is not JSON any more: only bytes can be changed.
            if (spoilt.length > 0) spoilt = spoilBytes(random, spoilt);
          }
        }
        writeFileSync(path, spoilt);
      }
      tell(`${disturbs ? "disturbed" : "spoilt"}: ${readFileSync(path).subarray(0, 400).toString("latin1")}`);
      utimesSync(path, LONG_AGO, LONG_AGO);
      try {
        using file = openSafetensors(path);
        const isKept = disturbs ? disturb(random) : false;
        for (const [name, entry] of file.tensors) {
          const tensor = file.read(name);
          const expected = entry.shape.reduce((product, size) => product * size, bytesOf(entry.dtype));
          if (tensor.shape.join() !== entry.shape.join() || expected !== entry.nbytes)
            throw new Error(`${name} has another shape`);
          if (disturbs && contentOf(tensor) !== written.get(name))
            throw new Error(`${name} has other numbers`);
          bytesOfHandle(tensor.handle);
        }
        if (disturbs && !isKept && file.tensors.size > 0) throw new Error("a changed file was read");
        return { refused: null };
      } catch (error) {
        if (error instanceof UsageError) return { refused: error.message };
        throw error;
      }
    });
  },
};
