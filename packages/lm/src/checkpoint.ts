import { readdir, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { describeValue, UsageError } from "@astra-rl/base";
import { requireDevice, type Device, type DType } from "@astra-rl/torch";
import { requireNoAdapter } from "./adapters/adapter.js";
import type { CausalLM, ModelConfig } from "./causal-lm.js";
import { classifierFamilyOf, encoderFamilyOf, familyOf } from "./families/index.js";
import { readJsonIfThere, reason, type JsonFields } from "./json-fields.js";
import type { SequenceClassifier, TextEncoder } from "./text-encoder.js";
import { Tokenizer, VOCABULARIES } from "./tokenizer.js";
import { readParameters, type Family } from "./read-parameters.js";
import { resolveCheckpoint, resolveTokenizer, type HubOptions } from "./resolve-checkpoint.js";
import { saveFolder, SINGLE, WeightFiles } from "./weight-files.js";

export interface LoadOptions {
  /** Type of the parameters, independent of the stored type. Default "float32". */
  dtype?: DType;
  /** Type of the matrix products. Default: that of the parameters. */
  computeDtype?: DType;
  /** Default "cpu". */
  device?: Device;
  /** Folder or model id of a tokenizer to use if the checkpoint has none. Default: the checkpoint must have one. */
  tokenizer?: string;
  /**
   * How models are fetched from the hub and where progress is reported. Default: environment variables
   * decide, no progress.
   */
  hub?: HubOptions;
}

interface Loaded<M> {
  /** The caller disposes of it. */
  model: M;
  tokenizer: Tokenizer;
  /** Tensors of the checkpoint that the model does not use (other heads), for a warning. */
  unusedTensors: readonly string[];
}

export interface LoadedCausalLM extends Loaded<CausalLM> {
  /** Merged settings; generation_config.json has precedence over config.json, and both over the tokenizer. */
  generation: { bosId: number | null; eosIds: readonly number[]; padId: number | null };
}

/**
 * Loads a causal language model and its tokenizer from a folder in Hugging Face's format, or from the hub.
 *
 * @param checkpoint a folder, or a model id "owner/name[@revision]" if no such folder exists
 * @throws UsageError for anything missing, malformed, unsupported or inconsistent; the message names the
 * file, the rule and the value found
 */
export async function loadCausalLM(checkpoint: string, options: LoadOptions = {}): Promise<LoadedCausalLM> {
  const { config, loaded } = await load(checkpoint, options, familyOf, async (read, tokenizer, directory) => {
    const generation = await readJsonIfThere(join(directory, "generation_config.json"));
    return withGenerationSettings(read, generation, tokenizer);
  });
  const { bosId, eosIds, padId } = config;
  return { ...loaded, generation: { bosId, eosIds, padId } };
}

/**
 * Loads a model of any kind.
 *
 * @param familyFor the family for a config.json
 * @param complete completes the configuration before the weights are read
 */
async function load<C extends { readonly vocabSize: number; readonly layers: number }, M>(
  checkpoint: string,
  options: LoadOptions,
  familyFor: (fields: JsonFields) => Family<C, M>,
  complete: (config: C, tokenizer: Tokenizer, directory: string) => Promise<C>,
): Promise<{ config: C; loaded: Loaded<M> }> {
  const { dtype = "float32", computeDtype = dtype, device = "cpu", tokenizer: fallback, hub } = options;
  requireDevice(device, "device");
  const directory = await resolveCheckpoint(checkpoint, { ...hub, needsTokenizer: fallback === undefined });
  const fields = await readConfig(directory);
  requireUnquantized(fields);
  const family = familyFor(fields);
  const read = family.parseConfig(fields);
  const borrows = fallback !== undefined && !(await hasTokenizer(directory));
  const tokenizer = await Tokenizer.load(borrows ? await resolveTokenizer(fallback, hub) : directory);
  checkVocabulary(directory, tokenizer, read.vocabSize);
  const completed = await complete(read, tokenizer, directory);
  const files = await WeightFiles.open(directory);
  try {
    const { where } = fields;
    const config = family.settled?.(completed, files) ?? completed;
    const { parameters, unusedTensors } = readParameters(files, family, config, where, { dtype, device });
    return {
      config,
      loaded: { model: family.create(config, parameters, computeDtype), tokenizer, unusedTensors },
    };
  } finally {
    files.close();
  }
}

/**
 * Saves a model and its tokenizer in Hugging Face's format, so that Python's `from_pretrained` reads the folder.
 *
 * The write is atomic: an existing folder is replaced by a rename once everything is written.
 *
 * @throws UsageError if the folder cannot be written, or exists and is not a checkpoint, and for a view with an adapter
 */
export async function saveCausalLM(directory: string, model: CausalLM, tokenizer: Tokenizer): Promise<void> {
  requireNoAdapter(model, "saveCausalLM");
  const target = resolve(directory);
  await checkReplaceable(target);
  const files = {
    "config.json": configToSave(model),
    "generation_config.json": generationToSave(model.config),
  };
  await saveFolder(target, [SINGLE, model.namedParameters()], files, (folder) => tokenizer.save(folder));
}

export type LoadedClassifier = Loaded<SequenceClassifier>;

/**
 * Loads a sequence classifier (BERT, DistilBERT, RoBERTa, XLM-RoBERTa) and its tokenizer; otherwise like
 * `loadCausalLM`.
 */
export async function loadSequenceClassifier(
  checkpoint: string,
  options: Omit<LoadOptions, "computeDtype" | "tokenizer"> = {},
): Promise<LoadedClassifier> {
  return (await load(checkpoint, options, classifierFamilyOf, async (config) => config)).loaded;
}

export interface LoadedEncoder extends Loaded<TextEncoder> {
  /**
   * Maximum tokens of a text, including special tokens: the sentence-transformers setting, else the model's
   * context length.
   */
  maxLength: number;
}

/**
 * Loads an encoder (BERT, DistilBERT, RoBERTa, XLM-RoBERTa) and its tokenizer; otherwise like `loadCausalLM`.
 * Folders of sentence-transformers with mean pooling can be loaded directly.
 *
 * @throws UsageError also if the folder specifies another pooling
 */
export async function loadTextEncoder(
  checkpoint: string,
  options: Omit<LoadOptions, "computeDtype" | "tokenizer"> = {},
): Promise<LoadedEncoder> {
  let sentence: number | null = null;
  const { config, loaded } = await load(checkpoint, options, encoderFamilyOf, async (read, _, directory) => {
    await checkPooling(directory);
    sentence = await sentenceLength(directory);
    return read;
  });
  return { ...loaded, maxLength: Math.min(config.contextLength, sentence ?? Infinity) };
}

/** Length to which sentence-transformers truncates texts; null if the folder does not specify it. */
async function sentenceLength(directory: string): Promise<number | null> {
  const fields = await readJsonIfThere(join(directory, "sentence_bert_config.json"));
  return fields?.integer("max_seq_length", { fallback: null }) ?? null;
}

/** Checks the pooling that a sentence-transformers folder specifies; plain transformers folders specify none. */
async function checkPooling(directory: string): Promise<void> {
  const fields = await readJsonIfThere(join(directory, "1_Pooling", "config.json"));
  if (fields === null) return;
  const { values, where } = fields;
  const chosen = Object.keys(values).filter((key) => key.startsWith("pooling_mode_") && values[key] === true);
  if (chosen.length === 1 && chosen[0] === "pooling_mode_mean_tokens") return;
  throw new UsageError(
    "unsupported-pooling",
    `${where}: vectors must be means over tokens (pooling_mode_mean_tokens), got ${chosen.join(", ") || "none"}; choose ` +
      `another encoder`,
  );
}

/**
 * Whether a folder holds tokenizer files, even invalid ones: these are read, and their errors reported,
 * before falling back to another tokenizer.
 */
async function hasTokenizer(directory: string): Promise<boolean> {
  const names = await readdir(directory).catch((): string[] => []);
  return VOCABULARIES.some((name) => names.includes(name));
}

async function readConfig(directory: string): Promise<JsonFields> {
  await checkFolder(directory);
  const place = join(directory, "config.json");
  const fields = await readJsonIfThere(place);
  if (fields === null)
    throw new UsageError(
      "missing-configuration",
      `${place}: a checkpoint needs this file, but there is none`,
    );
  return fields;
}

/** The scales of quantized weights are in separate tensors: without them the weights would be wrong. */
function requireUnquantized(fields: JsonFields): void {
  for (const name of ["quantization_config", "compression_config"]) {
    if (!fields.has(name)) continue;
    throw fields.error(
      "quantized-weights",
      name,
      "absent: quantized weights (fp8, GPTQ, AWQ, bitsandbytes) are not supported; use the original checkpoint, or " +
        "convert it to 16 bits in Python (from_pretrained, model.dequantize(), save_pretrained)",
    );
  }
}

async function checkFolder(directory: string): Promise<void> {
  let isFolder: boolean;
  try {
    isFolder = (await stat(directory)).isDirectory();
  } catch (cause) {
    const isMissing = (cause as NodeJS.ErrnoException).code === "ENOENT";
    const problem = isMissing ? "there is no such folder" : `cannot be read: ${reason(cause)}`;
    throw new UsageError(
      isMissing ? "folder-not-found" : "file-unreadable",
      `${directory}: ${problem}; a checkpoint is a folder with config.json, model.safetensors and tokenizer.json, ` +
        `or a model id "owner/name" of the hub`,
      { cause },
    );
  }
  if (!isFolder)
    throw new UsageError("not-a-folder", `${directory}: a checkpoint is a folder, but this is a file`);
}

function checkVocabulary(directory: string, tokenizer: Tokenizer, vocabSize: number): void {
  if (tokenizer.vocabSize <= vocabSize) return;
  throw new UsageError(
    "token-without-embedding",
    `${join(directory, "tokenizer.json")}: every token must have an embedding, but the tokenizer gives ids up to ` +
      `${tokenizer.vocabSize - 1} and config.json has "vocab_size" ${vocabSize}; ` +
      `use the tokenizer that the model was trained with`,
  );
}

/**
 * As in Python, generation_config.json takes precedence over config.json; the tokenizer fills in what both leave open.
 */
function withGenerationSettings<C extends ModelConfig>(
  config: C,
  fields: JsonFields | null,
  tokenizer: Tokenizer,
): C {
  const inside = (ids: readonly number[]) => ids.filter((id) => id < config.vocabSize);
  const firstOf = (name: string, configured: readonly number[], token: number | null): number[] => {
    const given = inside(fields?.ids(name) ?? []);
    if (given.length > 0) return given;
    const known = inside(configured);
    return known.length > 0 ? known : token === null ? [] : [token];
  };
  const one = (id: number | null) => (id === null ? [] : [id]);
  return {
    ...config,
    bosId: firstOf("bos_token_id", one(config.bosId), tokenizer.bosId)[0] ?? null,
    eosIds: firstOf("eos_token_id", config.eosIds, tokenizer.eosId),
    padId: firstOf("pad_token_id", one(config.padId), tokenizer.padId)[0] ?? null,
    generation: fields?.values ?? null,
  };
}

function configToSave(model: CausalLM): Record<string, unknown> {
  const { raw, architecture, modelType, tiedEmbeddings } = model.config;
  const dtypeKey = "torch_dtype" in raw ? "torch_dtype" : "dtype";
  return {
    ...raw,
    architectures: [architecture],
    model_type: modelType,
    [dtypeKey]: model.dtype,
    // False if the file had two tables although its config.json declares one. If true, the family's default is also
    // true.
    ...(tiedEmbeddings ? {} : { tie_word_embeddings: false }),
  };
}

function generationToSave(config: ModelConfig): Readonly<Record<string, unknown>> {
  if (config.generation !== null) return config.generation;
  const eos = config.eosIds.length === 1 ? config.eosIds[0] : config.eosIds;
  return {
    ...(config.bosId === null ? {} : { bos_token_id: config.bosId }),
    ...(config.eosIds.length === 0 ? {} : { eos_token_id: eos }),
    ...(config.padId === null ? {} : { pad_token_id: config.padId }),
  };
}

/** Replacing a folder deletes its contents, so it must be a checkpoint or empty. */
async function checkReplaceable(target: string): Promise<void> {
  let names: string[];
  try {
    names = await readdir(target);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") return;
    throw new UsageError("not-writable", `${target}: cannot be written as a folder: ${reason(cause)}`, {
      cause,
    });
  }
  if (names.length === 0 || names.includes("config.json")) return;
  throw new UsageError(
    "folder-occupied",
    `${target}: must be a new folder, an empty one or a checkpoint, but it contains ${describeValue(names)}`,
  );
}
