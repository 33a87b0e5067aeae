/**
 * Mutates the weights of tiny valid checkpoints: the header's entries, its bytes, the file's end; of pickled weights the
 * pickle, the archive's directory, the file's end.
 *
 *     node --import tsx packages/lm/fuzz/checkpoints.ts --cases 10000 --seed 1
 */
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { checkpoints, contentOf, inCopy, loadAndRead } from "./checkpoint-folders.js";
import { fuzz } from "./harness.js";
import { mutateBytes, mutateJson } from "./mutate-json.js";
import type { Random } from "./random.js";

await fuzz(import.meta.url, {
  name: "checkpoints",
  begin: async () => () => {},
  runCase: async (random) => {
    const name = random.pick([...checkpoints.keys()]);
    const source = checkpoints.get(name)!;
    const file = random.pick(readdirSync(source).filter((each) => /\.(safetensors|bin)$/.test(each)));
    await inCopy(source, [file], async (folder) => {
      const mutate = file.endsWith(".bin") ? mutatePickled : mutateWeights;
      writeFileSync(join(folder, file), mutate(contentOf(join(source, file)), random));
      await loadAndRead(name, folder);
    });
  },
  namesPlace: (message) => message.includes("/fuzz-"),
});

function mutateWeights(bytes: Buffer, random: Random): Buffer {
  const length = Number(bytes.readBigUInt64LE(0));
  const data = bytes.subarray(8 + length);
  if (random.once(10)) return mutateBytes(bytes, random);
  if (random.once(4)) {
    return Buffer.concat([mutateBytes(bytes.subarray(0, 8 + length), random), data]);
  }
  const header = JSON.parse(bytes.subarray(8, 8 + length).toString()) as Record<string, unknown>;
  const json = Buffer.from(
    JSON.stringify(random.once(3) ? renamed(header, random) : mutateJson(header, random)) ?? "",
  );
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([size, json, data]);
}

/**
 * The pickle is at the start of the file and the directory at its end; the numbers between them may have any values.
 */
function mutatePickled(bytes: Buffer, random: Random): Buffer {
  const [start, end] = random.once(2) ? [0, 8192] : [bytes.length - 8192, bytes.length];
  return Buffer.concat([
    bytes.subarray(0, start),
    mutateBytes(bytes.subarray(start, end), random),
    bytes.subarray(end),
  ]);
}

/** Valid headers with changed contents: other names, types of the same width, dimensions in another order. */
function renamed(header: Record<string, unknown>, random: Random): Record<string, unknown> {
  const keys = Object.keys(header).filter((key) => key !== "__metadata__");
  const [first, second] = [random.pick(keys), random.pick(keys)];
  return Object.fromEntries(
    Object.entries(header).map(([key, entry]) => {
      if (key !== first) return [key, entry];
      const { dtype, shape, ...rest } = entry as { dtype: string; shape: number[] };
      switch (random.below(4)) {
        case 0:
          return [`${second}.`, entry];
        case 1:
          return [key.replace(/\d+/, () => String(random.pick([0, 1, 2, 99, 2 ** 31, 2 ** 53]))), entry];
        case 2:
          return [key, { dtype: random.pick(["F32", "I32", "BF16", "F16", "I16", dtype]), shape, ...rest }];
        default:
          return [
            key,
            {
              dtype,
              shape: random.pick([[...shape].reverse(), [1, ...shape], [shape.reduce((a, b) => a * b, 1)]]),
              ...rest,
            },
          ];
      }
    }),
  );
}
