import { mkdir, readdir, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import {
  describeValue,
  replaceFolder,
  requireDevice,
  UsageError,
  writeDigests,
  writeFileAtomic,
  writeSafetensors,
  makeFolder,
  type Device,
  type DType,
} from "@astra-rl/torch";
import type { CausalLM, ModelConfig } from "./causal-lm.js";
import { classifierFamilyOf, encoderFamilyOf, familyOf } from "./families/index.js";
import { JsonFields, parseJsonObject, readFileIfThere, reason } from "./json-fields.js";
import type { SequenceClassifier } from "./sequence-classifier.js";
import type { TextEncoder } from "./text-encoder.js";
import { Tokenizer, VOCABULARIES } from "./tokenizer.js";
import { readParameters } from "./read-parameters.js";
import { resolveCheckpoint, resolveTokenizer, type HubOptions } from "./resolve-checkpoint.js";
import { SINGLE, WeightFiles } from "./weight-files.js";

export interface LoadOptions {
  /** Type of the parameters, whatever they are stored in. Default "float32". */
  dtype?: DType;
  /** Type of the matrix products. Default: that of the parameters. */
  computeDtype?: DType;
  /** Default "cpu". */
  device?: Device;
  /**
   * Folder or model id whose tokenizer is taken where the checkpoint has none of its own. Default: it must have one.
   */
  tokenizer?: string;
  /** How a model id is fetched, who is told of its progress. Default: as the environment says, telling nobody. */
  hub?: HubOptions;
}

export interface LoadedCausalLM {
  /** The caller disposes of it. */
  model: CausalLM;
  tokenizer: Tokenizer;
  /** What generation_config.json, config.json and the tokenizer say together, in this order. */
  generation: { bosId: number | null; eosIds: readonly number[]; padId: number | null };
  /** Tensors of the checkpoint that the model has no use for (other heads), for a warning. */
  unusedTensors: readonly string[];
}

/**
 * Loads a causal language model and its tokenizer from a folder in Hugging Face's format, or from the hub.
 *
 * @param checkpoint a folder, or a model id "owner/name[@revision]" where there is no such folder
 * @throws UsageError, naming the file, the rule and what was found, for everything that is missing, malformed,
 * unsupported or inconsistent
 */
export async function loadCausalLM(checkpoint: string, options: LoadOptions = {}): Promise<LoadedCausalLM> {
  const { dtype = "float32", computeDtype = dtype, device = "cpu" } = options;
  requireDevice(device, "device");
  const { tokenizer: fallback } = options;
  const directory = await resolveCheckpoint(checkpoint, {
    ...options.hub,
    needsTokenizer: fallback === undefined,
  });
  const fields = await readConfig(directory);
  const place = fields.where;
  const family = familyOf(fields);
  const parsed = family.parseConfig(fields);
  const borrows = fallback !== undefined && !(await hasTokenizer(directory));
  const tokenizer = await Tokenizer.load(borrows ? await resolveTokenizer(fallback, options.hub) : directory);
  checkVocabulary(directory, tokenizer, parsed.vocabSize);
  const config = withGenerationSettings(parsed, await readGenerationConfig(directory), tokenizer);

  const { parameters, unusedTensors } = await readWeights(directory, family, config, {
    dtype,
    device,
    place,
  });
  const { bosId, eosIds, padId } = config;
  const model = family.create(config, parameters, computeDtype);
  return { model, tokenizer, generation: { bosId, eosIds, padId }, unusedTensors };
}

/** What every kind of family says of its parameters. */
interface Parameterized<C> {
  readonly layersKey: string;
  parameterShapes(config: C): ReadonlyMap<string, readonly number[]>;
  parameterName(key: string, config: C): string | null;
}

/** The parameters of a family's model, from the weight files of a folder. */
async function readWeights<C extends { readonly layers: number }>(
  directory: string,
  family: Parameterized<C>,
  config: C,
  { place, ...types }: { place: string; dtype: DType; device: Device },
) {
  const files = await WeightFiles.open(directory);
  try {
    const expectation = {
      shapes: () => family.parameterShapes(config),
      parameterName: (key: string) => family.parameterName(key, config),
      layers: config.layers,
      layersKey: family.layersKey,
      place,
    };
    return readParameters(files, expectation, types);
  } finally {
    files.close();
  }
}

/**
 * Saves a model and its tokenizer in Hugging Face's format, so that Python's `from_pretrained` reads the folder.
 *
 * The folder appears whole or not at all: an existing one is replaced by a rename once everything is written.
 *
 * @throws UsageError where the folder cannot be written, or holds something that is no checkpoint
 */
export async function saveCausalLM(directory: string, model: CausalLM, tokenizer: Tokenizer): Promise<void> {
  const target = resolve(directory);
  await checkReplaceable(target);
  makeFolder(dirname(target));
  await replaceFolder(target, async (temporary) => {
    await mkdir(temporary);
    const digests = new Map<string, string>();
    writeSafetensors(join(temporary, SINGLE), model.namedParameters(), { format: "pt" }, digests);
    writeDigests(temporary, digests);
    writeJson(join(temporary, "config.json"), configToSave(model));
    writeJson(join(temporary, "generation_config.json"), generationToSave(model.config));
    await tokenizer.save(temporary);
  });
}

export interface LoadedClassifier {
  /** The caller disposes of it. */
  model: SequenceClassifier;
  tokenizer: Tokenizer;
  /** Tensors of the checkpoint that the model has no use for. */
  unusedTensors: readonly string[];
}

/** Loads a sequence classifier (BERT, DistilBERT, RoBERTa, XLM-RoBERTa) and its tokenizer; otherwise as `loadCausalLM`. */
export async function loadSequenceClassifier(
  checkpoint: string,
  options: Omit<LoadOptions, "computeDtype" | "tokenizer"> = {},
): Promise<LoadedClassifier> {
  const { dtype = "float32", device = "cpu" } = options;
  requireDevice(device, "device");
  const directory = await resolveCheckpoint(checkpoint, options.hub);
  const fields = await readConfig(directory);
  const family = classifierFamilyOf(fields);
  const config = family.parseConfig(fields);
  const tokenizer = await Tokenizer.load(directory);
  checkVocabulary(directory, tokenizer, config.vocabSize);
  const types = { dtype, device, place: fields.where };
  const { parameters, unusedTensors } = await readWeights(directory, family, config, types);
  return { model: family.create(config, parameters), tokenizer, unusedTensors };
}

export interface LoadedEncoder {
  /** The caller disposes of it. */
  model: TextEncoder;
  tokenizer: Tokenizer;
  /** The most tokens of a text, special ones included: what sentence-transformers was told, or the model's window. */
  maxLength: number;
  /** Tensors of the checkpoint that the model has no use for, such as heads. */
  unusedTensors: readonly string[];
}

/**
 * Loads an encoder (BERT, DistilBERT, RoBERTa, XLM-RoBERTa) and its tokenizer; otherwise as `loadCausalLM`. Folders of
 * sentence-transformers are read as they are, where vectors are means over tokens.
 *
 * @throws UsageError also where the folder says that vectors are made otherwise
 */
export async function loadTextEncoder(
  checkpoint: string,
  options: Omit<LoadOptions, "computeDtype" | "tokenizer"> = {},
): Promise<LoadedEncoder> {
  const { dtype = "float32", device = "cpu" } = options;
  requireDevice(device, "device");
  const directory = await resolveCheckpoint(checkpoint, options.hub);
  const fields = await readConfig(directory);
  const family = encoderFamilyOf(fields);
  const config = family.parseConfig(fields);
  const tokenizer = await Tokenizer.load(directory);
  checkVocabulary(directory, tokenizer, config.vocabSize);
  await checkPooling(directory);
  const maxLength = Math.min(config.contextLength, (await sentenceLength(directory)) ?? Infinity);
  const types = { dtype, device, place: fields.where };
  const { parameters, unusedTensors } = await readWeights(directory, family, config, types);
  return { model: family.create(config, parameters), tokenizer, maxLength, unusedTensors };
}

/** What sentence-transformers cuts texts to; null where the folder does not say. */
async function sentenceLength(directory: string): Promise<number | null> {
  const place = join(directory, "sentence_bert_config.json");
  const bytes = await readFileIfThere(place);
  if (bytes === null) return null;
  const fields = new JsonFields(parseJsonObject(bytes, place), place);
  return fields.has("max_seq_length") ? fields.integer("max_seq_length") : null;
}

/** A folder of sentence-transformers says how vectors are made of hidden states; one of transformers says nothing. */
async function checkPooling(directory: string): Promise<void> {
  const place = join(directory, "1_Pooling", "config.json");
  const bytes = await readFileIfThere(place);
  if (bytes === null) return;
  const values = parseJsonObject(bytes, place);
  const chosen = Object.keys(values).filter((key) => key.startsWith("pooling_mode_") && values[key] === true);
  if (chosen.length === 1 && chosen[0] === "pooling_mode_mean_tokens") return;
  throw new UsageError(
    `${place}: vectors must be means over tokens (pooling_mode_mean_tokens), got ${chosen.join(", ") || "none"}; choose ` +
      `another encoder`,
  );
}

/** Whether a folder holds a tokenizer, or what somebody meant for one: that is read, and judged, before any other. */
async function hasTokenizer(directory: string): Promise<boolean> {
  const names = await readdir(directory).catch((): string[] => []);
  return VOCABULARIES.some((name) => names.includes(name));
}

async function readConfig(directory: string): Promise<JsonFields> {
  await checkFolder(directory);
  const place = join(directory, "config.json");
  const bytes = await readFileIfThere(place);
  if (bytes === null) throw new UsageError(`${place}: a checkpoint needs this file, but there is none`);
  return new JsonFields(parseJsonObject(bytes, place), place);
}

async function checkFolder(directory: string): Promise<void> {
  let isFolder: boolean;
  try {
    isFolder = (await stat(directory)).isDirectory();
  } catch (cause) {
    const rule =
      (cause as NodeJS.ErrnoException).code === "ENOENT"
        ? "there is no such folder"
        : `cannot be read: ${reason(cause)}`;
    throw new UsageError(
      `${directory}: ${rule}; a checkpoint is a folder with config.json, model.safetensors and tokenizer.json, ` +
        `or a model id "owner/name" of the hub`,
      { cause },
    );
  }
  if (!isFolder) throw new UsageError(`${directory}: a checkpoint is a folder, but this is a file`);
}

function checkVocabulary(directory: string, tokenizer: Tokenizer, vocabSize: number): void {
  if (tokenizer.vocabSize <= vocabSize) return;
  throw new UsageError(
    `${join(directory, "tokenizer.json")}: every token must have an embedding, but the tokenizer gives ids up to ` +
      `${tokenizer.vocabSize - 1} and config.json has "vocab_size" ${vocabSize}; ` +
      `use the tokenizer that the model was trained with`,
  );
}

async function readGenerationConfig(directory: string): Promise<JsonFields | null> {
  const place = join(directory, "generation_config.json");
  const bytes = await readFileIfThere(place);
  return bytes === null ? null : new JsonFields(parseJsonObject(bytes, place), place);
}

/** generation_config.json goes before config.json, as in Python; the tokenizer fills what both leave open. */
function withGenerationSettings(
  config: ModelConfig,
  fields: JsonFields | null,
  tokenizer: Tokenizer,
): ModelConfig {
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
  const { raw, architecture, modelType } = model.config;
  const dtypeKey = "torch_dtype" in raw ? "torch_dtype" : "dtype";
  return { ...raw, architectures: [architecture], model_type: modelType, [dtypeKey]: model.dtype };
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

function writeJson(path: string, value: Readonly<Record<string, unknown>>): void {
  writeFileAtomic(path, [JSON.stringify(value, null, 2) + "\n"]);
}

/** Replacing a folder deletes what is in it; so it must be a checkpoint, or empty. */
async function checkReplaceable(target: string): Promise<void> {
  let names: string[];
  try {
    names = await readdir(target);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") return;
    throw new UsageError(`${target}: cannot be written as a folder: ${reason(cause)}`, { cause });
  }
  if (names.length === 0 || names.includes("config.json")) return;
  throw new UsageError(
    `${target}: must be a new folder, an empty one or a checkpoint, but it holds ${describeValue(names)}`,
  );
}
