import { readdir } from "node:fs/promises";
import { basename, join } from "node:path";
import {
  checkDigest,
  describeValue,
  openSafetensors,
  UsageError,
  type SafetensorsFile,
  type Tensor,
} from "@astra-rl/torch";
import { JsonFields, parseJsonObject, readFileIfThere, reason } from "./json-fields.js";

export const SINGLE = "model.safetensors";
export const INDEX = "model.safetensors.index.json";

/** The weights of a checkpoint folder: one safetensors file, or several with an index. */
export class WeightFiles {
  private constructor(
    /** The file that holds each tensor. */
    private readonly files: ReadonlyMap<string, SafetensorsFile>,
  ) {}

  /** Opens what is there. Throws UsageError where nothing is, or where it cannot be used. */
  static async open(directory: string): Promise<WeightFiles> {
    let names: string[];
    try {
      names = await readdir(directory);
    } catch (cause) {
      throw new UsageError(`${directory}: cannot be read: ${reason(cause)}`, { cause });
    }
    if (names.includes(SINGLE)) {
      checkDigest(join(directory, SINGLE));
      const file = openSafetensors(join(directory, SINGLE));
      return new WeightFiles(new Map([...file.tensors.keys()].map((key) => [key, file])));
    }
    if (names.includes(INDEX)) return openShards(directory).then((files) => new WeightFiles(files));
    throw new UsageError(missingWeights(directory, names));
  }

  keys(): Iterable<string> {
    return this.files.keys();
  }

  /** The file, type and shape of a tensor, for checks before it is read. */
  describe(key: string): { path: string; dtype: string; shape: readonly number[] } {
    const file = this.files.get(key);
    const entry = file?.tensors.get(key);
    if (file === undefined || entry === undefined) throw new Error(`internal: no tensor ${key}`);
    return { path: file.path, dtype: entry.dtype, shape: entry.shape };
  }

  /** A tensor as it is stored, on the CPU. */
  read(key: string): Tensor {
    const file = this.files.get(key);
    if (file === undefined) throw new Error(`internal: no tensor ${key}`);
    return file.read(key);
  }

  close(): void {
    for (const file of new Set(this.files.values())) file.close();
  }
}

async function openShards(directory: string): Promise<Map<string, SafetensorsFile>> {
  const place = join(directory, INDEX);
  const opened = new Map<string, SafetensorsFile>();
  const files = new Map<string, SafetensorsFile>();
  try {
    for (const [key, name] of parseIndex((await readFileIfThere(place)) ?? "", place)) {
      let file = opened.get(name);
      if (file === undefined) opened.set(name, (file = openSafetensors(join(directory, name))));
      if (!file.tensors.has(key)) {
        throw new UsageError(`${place}: says that ${describeValue(key)} is in ${name}, but it is not there`);
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
 * The file of each tensor, as an index of shards names them: plain names, never paths out of the folder.
 *
 * @param place path of the index, for messages
 */
export function parseIndex(bytes: Uint8Array | string, place: string): Map<string, string> {
  const fields = new JsonFields(parseJsonObject(bytes, place), place);
  const map = fields.values["weight_map"];
  if (typeof map !== "object" || map === null || Array.isArray(map)) {
    throw fields.error("weight_map", "an object that gives each tensor's file");
  }
  const entries = Object.entries(map as Record<string, unknown>).map(([key, name]): [string, string] => {
    const plain = typeof name === "string" && basename(name) === name && !name.includes("\0");
    if (plain && name.endsWith(".safetensors")) return [key, name];
    throw new UsageError(
      `${place}: each tensor's file must be the name of a .safetensors file in the same folder, ` +
        `but for ${describeValue(key)} it is ${describeValue(name)}`,
    );
  });
  return new Map(entries);
}

/**
 * Says what to do where there are no weights that can be read.
 *
 * @param place folder or repository, the beginning of the sentence
 * @param names the files that are there instead
 */
export function missingWeights(place: string, names: readonly string[]): string {
  const pickled = names.find((name) => /\.(bin|pt|pth|ckpt)$/.test(name) && name !== "training_args.bin");
  if (pickled !== undefined) {
    return (
      `${place}: weights must be in ${SINGLE}, but they are pickled (${pickled}), and unpickling can run any ` +
      `code. Convert them once in Python: model = AutoModelForCausalLM.from_pretrained(folder); ` +
      `model.save_pretrained(folder, safe_serialization=True)`
    );
  }
  const other = names.find((name) => /\.(h5|msgpack|gguf|onnx|ot)$/.test(name));
  return (
    `${place}: weights must be in ${SINGLE} (or in several files with ${INDEX}), but there is neither` +
    (other === undefined ? "" : `; ${other} is in a format that is not supported`)
  );
}
