import { mkdir, readdir, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import {
  checkDigest,
  describeValue,
  makeFolder,
  replaceFolder,
  UsageError,
  writeDigests,
  writeFileAtomic,
} from "@astra-rl/base";
import {
  openSafetensors,
  openStateDict,
  writeSafetensors,
  type SafetensorsFile,
  type StateDictFile,
  type Tensor,
} from "@astra-rl/torch";
import { JsonFields, parseJsonObject, readFileIfThere, reason } from "./json-fields.js";

export const SINGLE = "model.safetensors";

/** A weight format: one file, or several with an index that maps each tensor to its file. */
export interface WeightFormat {
  readonly single: string;
  readonly index: string;
  /** File name extension. */
  readonly ending: string;
  open(path: string): WeightFile;
}

type WeightFile = SafetensorsFile | StateDictFile;

/** In order of precedence, as in transformers. */
export const WEIGHT_FORMATS: readonly WeightFormat[] = [
  { single: SINGLE, index: `${SINGLE}.index.json`, ending: ".safetensors", open: openSafetensors },
  {
    single: "pytorch_model.bin",
    index: "pytorch_model.bin.index.json",
    ending: ".bin",
    open: openStateDict,
  },
];

/** The weights of a checkpoint folder: one file, or several with an index. */
export class WeightFiles {
  private constructor(
    /** The file that contains each tensor. */
    private readonly files: ReadonlyMap<string, WeightFile>,
  ) {}

  /** Opens a folder's weights. Throws UsageError if there are none or they cannot be used. */
  static async open(directory: string): Promise<WeightFiles> {
    let names: string[];
    try {
      names = await readdir(directory);
    } catch (cause) {
      throw new UsageError("file-unreadable", `${directory}: cannot be read: ${reason(cause)}`, { cause });
    }
    for (const format of WEIGHT_FORMATS) {
      const { single, index } = format;
      if (names.includes(single)) {
        checkDigest(join(directory, single));
        const file = format.open(join(directory, single));
        return new WeightFiles(new Map([...file.tensors.keys()].map((key) => [key, file])));
      }
      if (names.includes(index)) {
        return openShards(directory, format).then((files) => new WeightFiles(files));
      }
    }
    throw new UsageError("missing-weights", missingWeights(directory, names));
  }

  keys(): Iterable<string> {
    return this.files.keys();
  }

  /** The file, type and shape of a tensor, for checks before reading. */
  describe(key: string): { path: string; dtype: string; shape: readonly number[] } {
    const file = this.files.get(key);
    const entry = file?.tensors.get(key);
    if (file === undefined || entry === undefined) throw new Error(`internal: no tensor ${key}`);
    return { path: file.path, dtype: entry.dtype, shape: entry.shape };
  }

  /** A tensor in its stored type, on the CPU. */
  read(key: string): Tensor {
    const file = this.files.get(key);
    if (file === undefined) throw new Error(`internal: no tensor ${key}`);
    return file.read(key);
  }

  close(): void {
    for (const file of new Set(this.files.values())) file.close();
  }
}

async function openShards(directory: string, format: WeightFormat): Promise<Map<string, WeightFile>> {
  const place = join(directory, format.index);
  const opened = new Map<string, WeightFile>();
  const files = new Map<string, WeightFile>();
  try {
    for (const [key, name] of parseIndex((await readFileIfThere(place)) ?? "", place, format)) {
      let file = opened.get(name);
      if (file === undefined) opened.set(name, (file = format.open(join(directory, name))));
      if (!file.tensors.has(key)) {
        throw new UsageError(
          "missing-tensor",
          `${place}: maps ${describeValue(key)} to ${name}, which does not contain it`,
        );
      }
      files.set(key, file);
    }
  } catch (error) {
    for (const file of opened.values()) file.close();
    throw error;
  }
  return files;
}

/**
 * The file of each tensor, from an index of shards; only plain file names are allowed, so that no path leaves the
 * folder.
 *
 * @param place path of the index, for messages
 */
export function parseIndex(
  bytes: Uint8Array | string,
  place: string,
  { ending }: WeightFormat,
): Map<string, string> {
  const fields = new JsonFields(parseJsonObject(bytes, place), place);
  const entries = Object.entries(fields.object("weight_map")).map(([key, name]): [string, string] => {
    const plain = typeof name === "string" && basename(name) === name && !name.includes("\0");
    if (plain && name.endsWith(ending)) return [key, name];
    throw new UsageError(
      "invalid-shard-name",
      `${place}: each tensor's file must be the name of a ${ending} file in the same folder, ` +
        `but for ${describeValue(key)} it is ${describeValue(name)}`,
    );
  });
  return new Map(entries);
}

/**
 * Error message for missing or unsupported weights, with a remedy.
 *
 * @param place folder or repository, the start of the message
 * @param names the files present
 */
export function missingWeights(place: string, names: readonly string[]): string {
  const [safetensors, pickled] = WEIGHT_FORMATS as [WeightFormat, WeightFormat];
  const other = names.find((name) => /\.(h5|msgpack|gguf|onnx|ot|pt|pth|ckpt)$/.test(name));
  return (
    `${place}: weights must be in ${safetensors.single} or ${pickled.single} (or in several files with an index, ` +
    `${safetensors.index}), but there is neither` +
    (other === undefined
      ? ""
      : `; ${other} is in a format that is not supported: save it once in Python with save_pretrained(folder)`)
  );
}

/**
 * Writes weights with their checksum, and JSON files next to them. The write is atomic: an existing folder is replaced
 * by a rename once everything is written.
 *
 * @param files contents by file name
 * @param more writes further files into the folder
 */
export async function saveFolder(
  directory: string,
  [name, tensors]: readonly [name: string, tensors: ReadonlyMap<string, Tensor>],
  files: Readonly<Record<string, Readonly<Record<string, unknown>>>>,
  more?: (folder: string) => Promise<void>,
): Promise<void> {
  const target = resolve(directory);
  makeFolder(dirname(target));
  await replaceFolder(target, async (temporary) => {
    await mkdir(temporary);
    const digests = new Map<string, string>();
    writeSafetensors(join(temporary, name), tensors, { format: "pt" }, digests);
    writeDigests(temporary, digests);
    for (const [file, content] of Object.entries(files))
      writeFileAtomic(join(temporary, file), [`${JSON.stringify(content, null, 2)}\n`]);
    await more?.(temporary);
  });
}

/** Stored size of a checkpoint's weights; 0 for a folder that does not exist, which loading will report. */
export async function storedWeightBytes(directory: string): Promise<number> {
  const names = await readdir(directory).catch(() => []);
  const files = WEIGHT_FORMATS.map(({ ending }) => names.filter((name) => name.endsWith(ending)));
  // If there are several formats, the one that is loaded.
  const read = files.find((found) => found.length > 0) ?? [];
  const sizes = await Promise.all(read.map(async (name) => (await stat(join(directory, name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}
